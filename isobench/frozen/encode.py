"""Compute vectors of any sentences with a frozen encoder, at several layers at once, and keep them in the cache."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from pytorch_lightning.utilities import move_data_to_device
from torch import Tensor
from torch.utils.data import DataLoader

from isobench.common.errors import refuse
from isobench.common.files import sha256_json
from isobench.common.progress import track_progress
from isobench.common.terminal import format_count, print_note, print_note_once
from isobench.config.schema import Config
from isobench.data import weights
from isobench.data.batches.loaders import ONE_CHUNK, make_sorted_loader, name_device, uses_gpu
from isobench.data.batches.tokens import Collator, Tokens, tokenise_examples
from isobench.data.cache import load_cached_arrays, name_cached_file, save_cached_arrays
from isobench.data.sentence_settings import describe_own_settings, read_sentence_settings
from isobench.metrics.tokens import mask_tokens
from isobench.models import encoders, tokenization
from isobench.models.sentence_encoder import Layer
from isobench.runs.identity import resolve_seeds
from isobench.tasks.kind import Examples
from isobench.training.train import configure_process

VERSION = 2  # of the cached files' content, part of their name: raise it when the vectors change
SPECIAL_TOKENS = 16  # more than a tokenizer adds to a text, of which a token has a byte at least
SENTENCES_PER_BATCH = 64  # sentences in one call of the encoder


@dataclass
class SentenceVectors:
    """The vectors of N sentences, [N, d] float32; ``cut``: how many were as long as the encoder's longest input.

    ``key`` identifies the vectors: sentences, weights, settings.
    """

    vectors: Tensor
    cut: int
    key: str


class FrozenEncoder:
    """A pretrained encoder whose weights stay as they are; it is loaded only for vectors that are not in the cache.

    ``encoder.pooling`` must be cls, mean or last. ``layers``: the layers whose vectors will be asked for.
    """

    def __init__(self, cfg: Config, layers: Sequence[Layer]) -> None:
        is_pooler = cfg.encoder.pooling == "pooler"
        refuse(
            (is_pooler, "encoder.pooling=pooler is made for classification: set encoder.pooling=mean, cls or last")
        )
        highest = max((layer for layer in layers if isinstance(layer, int)), default=None)  # its loader looks for it
        encoder = replace(cfg.encoder, layer=highest)
        self.cfg, self.layers = replace(cfg, encoder=encoder), layers
        configure_process(cfg)
        self.device = torch.device("cuda" if uses_gpu(cfg) else "cpu")
        self.fingerprint = weights.fingerprint_encoder(cfg.encoder)
        self.own = read_sentence_settings(cfg.encoder)
        for note in describe_own_settings(cfg.encoder):
            print_note(note)

    @cached_property
    def tokenizer(self) -> Any:
        """The encoder's tokenizer."""
        return tokenization.load_tokenizer(self.cfg.encoder, self.cfg.data.cache)

    @cached_property
    def loaded(self) -> encoders.LoadedEncoder:
        """The encoder, in evaluation mode."""
        seed = resolve_seeds(self.cfg)["init"]
        loaded = encoders.load_encoder(self.cfg.encoder, self.cfg.data.cache, seed, all_tokens=True)
        lacks = f"encoder={self.cfg.encoder.name} has no pretrained vectors: {'; '.join(loaded.warnings)}"
        refuse((loaded.init_seed is not None, lacks))
        for warning in loaded.warnings:
            print_note_once(f"encoder={self.cfg.encoder.name}: {warning}")
        loaded.encoder.eval()
        return loaded

    def encode(self, name: str, sentences: Sequence[str]) -> dict[Layer, SentenceVectors]:
        """Return the sentences' vectors at each layer, in the sentences' order; equal sentences are computed once.

        They are read as the encoder's own folder says: after its default prompt, and up to its longest input.
        ``name``: of the set of sentences, for the cache's file names and the progress bar.
        """
        if self.own.prompt:
            print_note_once(
                f"encoder={self.cfg.encoder.name}: its default prompt {self.own.prompt!r} begins each text"
            )
        sentences = [self.own.prompt + sentence for sentence in sentences]
        places: dict[str, int] = {}  # different sentence -> its row in the cached arrays
        index = [places.setdefault(sentence, len(places)) for sentence in sentences]
        keys = {layer: self._make_key(list(places), layer) for layer in self.layers}
        start = f"{name}-{self.cfg.encoder.name}"
        cache = self.cfg.data.cache
        files = {layer: name_cached_file(cache, "sentence_vectors", start, key) for layer, key in keys.items()}
        arrays = {layer: found for layer, file in files.items() if (found := load_cached_arrays(file)) is not None}
        if missing := [layer for layer in files if layer not in arrays]:
            computed = self._compute(name, list(places), missing)
            for layer, found in computed.items():
                save_cached_arrays(found, files[layer])
            arrays |= computed
        vectors = {
            layer: SentenceVectors(torch.from_numpy(kept["vectors"][index]), int(kept["cut"][0]), key)
            for layer, key in keys.items()
            for kept in [arrays[layer]]
        }
        zero = max(int((~own.vectors.any(1)).sum()) for own in vectors.values())
        if zero and self.cfg.encoder.word_vectors:
            print_note(f"{name}: no known word in {format_count(zero, 'text')}: zero vectors")
        return vectors

    def _make_key(self, sentences: list[str], layer: Layer) -> str:
        encoder = self.cfg.encoder
        settings = [encoder.pooling, encoder.token_type_ids, layer, *self._list_own_limits(sentences)]
        device = name_device(self.cfg)
        return sha256_json([VERSION, torch.__version__, self.fingerprint, settings, device, sentences])

    def _list_own_limits(self, sentences: list[str]) -> list[Any]:
        """List what the folder declares beside the prompt that changes what is read of these sentences."""
        limits: list[Any] = ["small letters"] if self.own.small_letters else []
        if longest := self.own.longest:
            long = [sentence for sentence in sentences if len(sentence.encode()) + SPECIAL_TOKENS > longest]
            if long and max(map(len, self.tokenizer(long)["input_ids"])) > longest:
                limits.append(longest)
        return limits

    @torch.no_grad()
    def _compute(self, name: str, sentences: list[str], layers: list[Layer]) -> dict[Layer, dict[str, np.ndarray]]:
        tokens, batches, longest = self._make_batches(sentences)
        cut = np.array([(tokens.lengths >= longest).sum()])
        vectors = {layer: np.empty((len(sentences), self.loaded.dim), np.float32) for layer in layers}
        bar = f"{name}, {self.cfg.encoder.name}, once"
        for batch in track_progress(batches, bar):
            (chunk,) = batch["chunks"]
            pooled = self.loaded.encoder.pool_layers(layers, **move_data_to_device(chunk, self.device))
            for layer, rows in zip(layers, pooled, strict=True):  # rows: (b, d)
                vectors[layer][batch["index"].numpy()] = rows.float().cpu().numpy()[batch["restore"].numpy()]
        return {layer: {"vectors": rows, "cut": cut} for layer, rows in vectors.items()}

    def iterate_tokens(
        self, sentences: Sequence[str], layer: Layer = None, without: Collection[str] = ()
    ) -> Iterator[Tensor]:
        """Yield the states of all tokens at a layer, without padding, in batches [n, d].

        ``without``: the tokens that are left out (`isobench.metrics.mask_tokens`). Outlying norms are judged among
        the tokens of a batch. The sentences come sorted by their length.

        Raises ValueError for a layer that the encoder was not made for.
        """
        if layer not in self.layers:
            raise ValueError(f"layer must be one of {list(self.layers)}, for which the encoder was made, not {layer}")
        if self.own.prompt:
            print_note_once(
                f"encoder={self.cfg.encoder.name}: texts whose tokens are taken go without its default prompt"
            )
        _, batches, _ = self._make_batches(sentences)
        special = torch.tensor(sorted(self.tokenizer.all_special_ids))
        for batch in batches:
            (chunk,) = batch["chunks"]
            with torch.no_grad():
                (states,) = self.loaded.encoder.compute_states([layer], **move_data_to_device(chunk, self.device))
            kept = chunk["attention_mask"].bool()
            positions = (kept.cumsum(1) - 1)[kept]
            found = states.cpu()[kept]  # [b, T, d] -> [n, d]
            if without:
                found = found[mask_tokens(found, positions, torch.isin(chunk["input_ids"][kept], special), without)]
            yield found

    def count_tokens(self, sentences: Sequence[str], words: int) -> np.ndarray:
        """Count how often each of the first ``words`` tokens of the vocabulary occurs in sentences, [words]."""
        return tokenization.count_tokens(self.tokenizer, self._prepare(sentences), words)

    def _prepare(self, sentences: Sequence[str]) -> list[str]:
        return [sentence.lower() for sentence in sentences] if self.own.small_letters else list(sentences)

    def _make_batches(self, sentences: Sequence[str]) -> tuple[Tokens, DataLoader, int]:
        """Tokenise sentences; return tokens, padded batches of like length, and how many tokens a text may have."""
        limits = (self.loaded.max_positions, self.tokenizer.model_max_length, self.own.longest)
        longest = min(limit for limit in limits if limit is not None)
        examples = Examples([self._prepare(sentences)], np.zeros(len(sentences), np.float32))  # there are no labels
        tokens = tokenise_examples(examples, self.tokenizer, longest)
        self.loaded.encoder.to(self.device)  # not when it is loaded: a vocabulary alone is read on the CPU
        collator = Collator(tokens, self.tokenizer.pad_token_id, ONE_CHUNK, self.cfg.encoder.token_type_ids)
        batches = make_sorted_loader(self.cfg, tokens, tokens.lengths, SENTENCES_PER_BATCH, collator)
        return tokens, batches, longest
