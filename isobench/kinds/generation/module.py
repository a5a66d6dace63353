"""The module for translation and summarisation: an encoder-decoder with calibrated decoder states and beam search.

P(y | h) is a softmax over h W^T (isotropy-calibration paper, Sec. 3). A calibration changes the decoder's states h. A
penalty acts on the output embedding W, which is the input embedding too where the two are tied.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from isobench.calibration.base import Calibration
from isobench.calibration.chain import Chain
from isobench.common.errors import RunFailure, refuse
from isobench.config.schema import Config
from isobench.data.batches.loaders import uses_gpu
from isobench.kinds.generation.batches import PairLoaders
from isobench.kinds.generation.pairs import require_generation
from isobench.kinds.words.projection import IDENTITY_POOLER, MAX_MEASURED_STATES, CalibratedProjection
from isobench.models.encoders import ENCODER_DECODER, LoadedGenerator
from isobench.training.fine_tuned import FineTuningModule

# Entries of transformers' GenerationConfig that do not change the hypotheses.
IRRELEVANT_SEARCH_SETTINGS = (
    "transformers_version", "_from_model_config", "use_cache", "output_attentions", "output_hidden_states",
)  # fmt: skip


class WordLookup:
    """Let each word embedding of an encoder-decoder look up the words of all chunks of a batch in one call.

    In the backward pass each call makes a dense gradient [V, d], almost all of it zeros. One call for a batch makes
    one gradient instead of one for each chunk. A hook hands out a chunk's vectors when the model looks up its words.
    It works for architectures that scale their vectors after the lookup too, which ``inputs_embeds`` does not.
    """

    def __init__(self, model: Any) -> None:
        self.encoder_words: nn.Module = model.get_encoder().get_input_embeddings()
        self.decoder_words: nn.Module = model.get_decoder().get_input_embeddings()
        self._waiting: dict[nn.Module, list[tuple[Tensor, Tensor]]] = {}  # ids and vectors, in the order of the calls
        for module in dict.fromkeys((self.encoder_words, self.decoder_words)):
            module.register_forward_hook(self._hand_out)

    @contextmanager
    def share(self, chunks: Sequence[tuple[Tensor, Tensor]]) -> Iterator[None]:
        """Look up all words; calls of the model with these chunks, in order, inside this context get the vectors.

        ``chunks``: of each call the encoder's and the decoder's ids, [b, S] and [b, T].
        """
        calls: dict[nn.Module, list[Tensor]] = {}
        for read, written in chunks:
            calls.setdefault(self.encoder_words, []).append(read)
            calls.setdefault(self.decoder_words, []).append(written)
        waiting = {}  # not yet the hook's: it would hand them out to this lookup
        for module, ids in calls.items():
            vectors = module(torch.cat([part.flatten() for part in ids])).split([part.numel() for part in ids])
            waiting[module] = [(part, v.unflatten(0, part.shape)) for part, v in zip(ids, vectors, strict=True)]
        self._waiting = waiting
        try:
            yield
        finally:
            self._waiting = {}

    def _hand_out(self, module: nn.Module, arguments: tuple[Tensor, ...], own: Tensor) -> Tensor:
        """Replace a lookup by the vectors that wait for these ids; other ids keep their own."""
        waiting = self._waiting.get(module)
        if not waiting or waiting[0][0].data_ptr() != arguments[0].data_ptr() or waiting[0][1].shape != own.shape:
            return own
        return waiting.pop(0)[1]


class Seq2Seq(FineTuningModule):
    """Translate or summarise with an encoder-decoder whose decoder states are calibrated."""

    long_evaluation = True

    def __init__(
        self, cfg: Config, loaded: LoadedGenerator, chain: Chain, loaders: PairLoaders, total_steps: int
    ) -> None:
        super().__init__(cfg, chain, total_steps)
        self.model = loaded.model
        self.projection = CalibratedProjection(loaded.model, chain)
        self.words = WordLookup(loaded.model)
        self.tokenizer, self.references = loaders.tokenizer, loaders.references
        self.generation_config = _build_generation_config(cfg, loaded, loaders)
        self.state_stride = 1 + int(loaders.dev_tokens[0].targets.lengths.sum()) // MAX_MEASURED_STATES
        self.search_in_bf16 = uses_gpu(cfg) and torch.cuda.is_bf16_supported()
        self.smoothing = cfg.optimization.label_smoothing or 0.0

    def describe_search(self) -> dict[str, Any]:
        """Describe the search for the record: the settings that are not transformers' defaults, and the precision."""
        given = self.generation_config.to_diff_dict()
        settings = {name: value for name, value in given.items() if name not in IRRELEVANT_SEARCH_SETTINGS}
        return {**settings, "precision": "bf16" if self.search_in_bf16 else "32"}

    def compute_decoder_states(self, batch: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """Compute the uncalibrated states of a batch's target tokens, [N, d]; returns these tokens too, [N].

        All chunks' tokens are known before the first, so that their vectors are looked up, and differentiated, once.
        """
        states, labels = [], []
        written = [self.model.prepare_decoder_input_ids_from_labels(labels=c["labels"]) for c in batch["chunks"]]
        with self.words.share([(c["input_ids"], ids) for c, ids in zip(batch["chunks"], written, strict=True)]):
            for chunk, ids in zip(batch["chunks"], written, strict=True):
                sources = {name: chunk[name] for name in ("input_ids", "attention_mask")}
                with self.projection.capture_states(chunk["positions"]) as kept:
                    self.model(**sources, decoder_input_ids=ids, use_cache=False)
                states.append(kept[-1])
                labels.append(chunk["labels"].flatten().index_select(0, chunk["positions"]))
        return torch.cat(states), torch.cat(labels)

    def count_vectors(self, tokens: Any, calibration: Calibration) -> np.ndarray:
        """Count the target tokens."""
        return tokens.targets.lengths

    def compute_vectors(self, batch: dict[str, Any], calibration: Calibration | None = None) -> Tensor:
        """Compute the states of the target tokens."""
        return self.compute_decoder_states(batch)[0]

    def export(self, folder: Path) -> tuple[dict[str, Any], list[str]]:
        """Write the model and its search settings."""
        self.model.save_pretrained(folder)
        self.generation_config.save_pretrained(folder)
        return {"load_with": ENCODER_DECODER.auto}, []

    def training_step(self, batch: dict[str, Any], index: int) -> Tensor:
        states, labels = self.compute_decoder_states(batch)
        h, method_inputs = self.chain(states, IDENTITY_POOLER)
        loss = self.projection.sum_losses(h, labels, self.smoothing) / len(labels)
        return self.compute_total_loss(loss, method_inputs, index)

    def matrices(self) -> dict[str, Callable[[], Tensor]]:
        """Return those of the projection: ``head`` and ``vocabulary``."""
        return self.projection.matrices()

    def on_validation_epoch_start(self) -> None:
        super().on_validation_epoch_start()
        self.loss_sums: dict[int, list[Tensor]] = {}

    def validation_step(self, batch: dict[str, Any], index: int, dataloader_idx: int = 0) -> dict[str, Tensor] | None:
        """Collect a batch's teacher-forced loss and its hypotheses.

        Returns every ``state_stride``-th calibrated state of the first dev split, for the monitors.
        """
        states, labels = self.compute_decoder_states(batch)
        h = self.chain(states, IDENTITY_POOLER)[0]
        total = self.projection.sum_losses(h, labels).double()
        self.loss_sums.setdefault(dataloader_idx, []).append(torch.stack([total, total.new_tensor(len(labels))]))
        self.note_texts(dataloader_idx, batch["index"], self.generate(batch["chunks"][0]))
        return {"embedding": h[:: self.state_stride].float()} if dataloader_idx == 0 else None

    @torch.no_grad()
    def generate(self, chunk: dict[str, Tensor]) -> list[str]:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.search_in_bf16):
            ids = self.model.generate(
                input_ids=chunk["input_ids"],
                attention_mask=chunk["attention_mask"],
                generation_config=self.generation_config,
            )  # (b, T)
        return self.tokenizer.batch_decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def score_further(self, position: int) -> dict[str, float]:
        """Compute the mean loss of a target token."""
        nats, tokens = torch.stack(self.loss_sums[position]).sum(0).tolist()
        if not np.isfinite(nats):
            step = self.global_step
            raise RunFailure("non_finite_output", f"the dev loss is not finite after step {step}", step)
        return {"loss": nats / tokens}


def _build_generation_config(cfg: Config, loaded: LoadedGenerator, loaders: PairLoaders) -> Any:
    """Make transformers' ``GenerationConfig`` from the model's special tokens and the task's search settings.

    The decoder starts with the token that the model puts first when it shifts targets to the right; for mBART that is
    the language.
    """
    g, model = require_generation(cfg.task), loaded.model
    longest = min(g.max_length, loaded.max_positions - 1)
    refuse((g.min_length > longest, f"task.generation.min_length: {cfg.encoder.name} writes up to {longest} tokens"))
    search = copy.deepcopy(model.generation_config)
    labels = torch.from_numpy(loaders.dev_tokens[0].targets.ids[: loaders.dev_tokens[0].targets.offsets[1]])
    first = model.prepare_decoder_input_ids_from_labels(labels=labels[None].long())[0, 0]
    search.update(
        do_sample=False,
        num_beams=g.beams,
        early_stopping=g.beams > 1,
        max_length=None,
        max_new_tokens=longest,
        min_length=0,
        min_new_tokens=g.min_length or None,
        length_penalty=g.length_penalty if g.beams > 1 else 1.0,  # transformers saves no other without beams
        no_repeat_ngram_size=g.no_repeat_ngram,
        repetition_penalty=None,
        use_cache=True,
        decoder_start_token_id=int(first),
        pad_token_id=loaders.tokenizer.pad_token_id,
        eos_token_id=loaders.tokenizer.eos_token_id,
    )
    if search.forced_bos_token_id is not None:  # the checkpoint's, which may be that of another language
        search.forced_bos_token_id = int(labels[0])
    return search
