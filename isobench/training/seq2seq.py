"""Translation and summarisation: encoder-decoder, calibration before its output projection, beam search.

P(y | h) is a softmax over h W^T (isotropy-calibration paper, Sec. 3): a calibration changes the decoder's states h,
a penalty acts on the output embedding W, which is the input embedding too where they are tied.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from isobench.calibration.chain import Chain
from isobench.common.errors import RunFailure, UserError
from isobench.config.schema import Config
from isobench.data.loaders import uses_gpu
from isobench.data.pair_loaders import PairLoaders
from isobench.data.pairs import require_generation
from isobench.metrics.generated_text import evaluate_texts
from isobench.metrics.task import is_constant
from isobench.models.encoder_decoders import LoadedEncoderDecoder
from isobench.training.fine_tuned import FineTuningModule

MAX_MEASURED_STATES = 20_000  # decoder states of the first dev split whose isotropy is measured at most
# Of transformers' settings of a search those that decide nothing.
IRRELEVANT_SEARCH_SETTINGS = {
    "transformers_version",
    "_from_model_config",
    "use_cache",
    "output_attentions",
    "output_hidden_states",
}
IDENTITY_POOLER = nn.Identity()  # an encoder-decoder has no pooler


class CalibratedProjection:
    """An encoder-decoder's output projection, with the calibration before it wherever the model calls it.

    Works on any architecture, for all give their decoder's states to ``get_output_embeddings()`` (T5 scales them
    first). Weights keep their names.

    Args:
        model: a transformers encoder-decoder.
        chain: the methods.
    """

    def __init__(self, model: Any, chain: Chain) -> None:
        self.linear: nn.Linear = model.get_output_embeddings()
        self.chain = chain
        self.bias = getattr(model, "final_logits_bias", None)  # [1, V], of BART's family
        self._real: Tensor | None = None
        self._states: Tensor | None = None
        self.linear.register_forward_pre_hook(self._forward_pre_hook)

    @contextmanager
    def capture_states(self, real: Tensor) -> Iterator[Callable[[], Tensor]]:
        """Inside, a call of the model computes no logits: the states it would project are kept.

        Args:
            real: [b, T], true where a token is not padding. Only there are states kept.

        Yields:
            What gives them afterwards, [n, d].
        """
        self._real, self._states = real, None
        try:
            yield self._get_states
        finally:
            self._real = None

    def _get_states(self) -> Tensor:
        assert self._states is not None
        return self._states

    def _forward_pre_hook(self, module: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor]:
        (h,) = arguments  # (b, T, d)
        if self._real is not None:
            self._states = h[self._real]
            return (h[:, :0],)
        return (self.chain(h.flatten(0, 1), IDENTITY_POOLER)[0].unflatten(0, h.shape[:2]),)

    def logits(self, h: Tensor) -> Tensor:
        """Calibrated states [n, d] -> [n, V], float32."""
        bias = self.linear.bias
        if self.bias is not None:
            bias = self.bias[0] if bias is None else bias + self.bias[0]
        return nn.functional.linear(h, self.linear.weight, bias).float()


class Seq2Seq(FineTuningModule):
    """An encoder-decoder with a calibration of its decoder's states.

    Args:
        cfg: the run's config.
        loaded: the model.
        chain: the methods.
        loaders: the data, with its tokenizer and references.
        total_steps: optimiser steps of the whole schedule.
    """

    def __init__(
        self, cfg: Config, loaded: LoadedEncoderDecoder, chain: Chain, loaders: PairLoaders, total_steps: int
    ) -> None:
        super().__init__(cfg, chain, total_steps)
        self.model = loaded.model
        self.projection = CalibratedProjection(loaded.model, chain)
        self.tokenizer, self.references = loaders.tokenizer, loaders.references
        self.search = build_generation_config(cfg, loaded, loaders)
        self.stride = 1 + int(loaders.dev_tokens[0].targets.lengths.sum()) // MAX_MEASURED_STATES
        self.half = should_search_in_bf16(cfg)
        self.smoothing = cfg.optimization.label_smoothing or 0.0

    def describe_search(self) -> dict[str, Any]:
        """What decides the search: the settings that are not transformers' defaults, and the precision."""
        settings = {
            name: value
            for name, value in self.search.to_diff_dict().items()
            if name not in IRRELEVANT_SEARCH_SETTINGS
        }
        return {**settings, "precision": "bf16" if self.half else "32"}

    def states(self, batch: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """The decoder's states of a batch's target tokens, [N, d], and these tokens, [N]; padding is left out."""
        found, labels = [], []
        for chunk in batch["chunks"]:
            with self.projection.capture_states(chunk["real"]) as kept:
                self.model(
                    input_ids=chunk["input_ids"],
                    attention_mask=chunk["attention_mask"],
                    decoder_input_ids=self.model.prepare_decoder_input_ids_from_labels(labels=chunk["labels"]),
                    use_cache=False,
                )
            found.append(kept())
            labels.append(chunk["labels"][chunk["real"]])
        return torch.cat(found), torch.cat(labels)

    def training_step(self, batch: dict[str, Any], index: int) -> Tensor:
        """Cross-entropy a target token, plus the methods' penalties and own objectives."""
        states, labels = self.states(batch)
        h, given = self.chain(states, IDENTITY_POOLER)
        loss = nn.functional.cross_entropy(self.projection.logits(h), labels, label_smoothing=self.smoothing)
        return self.compute_total_loss(loss, given, index)

    def matrices(self) -> dict[str, Callable[[], Tensor]]:
        """The output embedding [V, d] and the input embedding [V, d]: one parameter where they are tied."""
        return {
            "head": lambda: self.projection.linear.weight,
            "vocabulary": lambda: self.model.get_input_embeddings().weight,
        }

    def on_validation_epoch_start(self) -> None:
        """Empty the collections of the epoch's hypotheses and losses."""
        self.texts: dict[int, dict[int, str]] = {}
        self.loss_sums: dict[int, list[Tensor]] = {}

    def validation_step(self, batch: dict[str, Any], index: int, dataloader_idx: int = 0) -> dict[str, Tensor] | None:
        """Teacher-forced loss and hypotheses; returns calibrated states of the first dev split, evenly chosen."""
        states, labels = self.states(batch)
        h = self.chain(states, IDENTITY_POOLER)[0]
        logits = self.projection.logits(h)
        total = nn.functional.cross_entropy(logits, labels, reduction="sum").double()
        self.loss_sums.setdefault(dataloader_idx, []).append(torch.stack([total, total.new_tensor(len(labels))]))
        hypotheses = self.generate(batch["chunks"][0])
        self.texts.setdefault(dataloader_idx, {}).update(zip(batch["index"].tolist(), hypotheses, strict=True))
        return {"embedding": h[:: self.stride].float()} if dataloader_idx == 0 else None

    @torch.no_grad()
    def generate(self, chunk: dict[str, Tensor]) -> list[str]:
        """Hypotheses of sources [b, S], by beam search with cached keys and values."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.half):
            ids = self.model.generate(
                input_ids=chunk["input_ids"],
                attention_mask=chunk["attention_mask"],
                generation_config=self.search,
            )  # (b, T)
        return self.tokenizer.batch_decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def on_validation_epoch_end(self) -> None:
        """Score the epoch's hypotheses."""
        self._raise_if_non_finite()
        scores, outputs = {}, {}
        for position, split in enumerate(self.cfg.task.evaluated):
            nats, tokens = torch.stack(self.loss_sums[position]).sum(0).tolist()
            if not nats < float("inf"):
                step = self.global_step
                raise RunFailure("non_finite_output", f"the dev loss is not finite after step {step}", step)
            references = self.references[position]
            hypotheses = [self.texts[position][number] for number in range(len(references))]
            metrics: dict[str, Any] = evaluate_texts(list(self.cfg.task.metrics), references, hypotheses)
            scores[split] = {**metrics, "loss": nats / tokens, "constant_predictor": is_constant(hypotheses)}
            outputs[split] = {"hypotheses": hypotheses, "references": references}
        self.texts, self.loss_sums = {}, {}
        self.record_epoch(scores, outputs)


def should_search_in_bf16(cfg: Config) -> bool:
    """Whether hypotheses are searched in bf16: as configured, else on a GPU that has it."""
    precision = require_generation(cfg.task).precision
    return precision == "bf16" or (precision == "auto" and uses_gpu(cfg) and torch.cuda.is_bf16_supported())


def build_generation_config(cfg: Config, loaded: LoadedEncoderDecoder, loaders: PairLoaders) -> Any:
    """The model's own special tokens, and the task's settings of the search; transformers' ``GenerationConfig``.

    Raises:
        UserError: hypotheses must be longer than the model can write.

    The decoder starts with what the model's own shift of the targets puts first, which for mBART is the language.
    """
    g, model = require_generation(cfg.task), loaded.model
    longest = min(g.max_length, loaded.max_positions - 1)
    if g.min_length > longest:
        raise UserError(
            f"task.generation.min_length={g.min_length}: encoder={cfg.encoder.name} writes up to {longest}"
        )
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
        length_penalty=g.length_penalty,
        no_repeat_ngram_size=g.no_repeat_ngram,
        use_cache=True,
        decoder_start_token_id=int(first),
        pad_token_id=loaders.tokenizer.pad_token_id,
        eos_token_id=loaders.tokenizer.eos_token_id,
    )
    return search
