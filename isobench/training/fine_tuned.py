"""The base class of the trained modules: total loss, non-finite checks, record of epochs, optimiser and schedule."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytorch_lightning as pl
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from isobench.calibration.base import Calibration
from isobench.calibration.chain import Chain
from isobench.common.errors import RunFailure, UserError
from isobench.config.schema import HELD_OUT, LAST_EPOCH, Config, Optimization
from isobench.metrics.task import is_constant, nan_to_zero
from isobench.models.dropout import DropoutNumbers
from isobench.runs.record import Epoch
from isobench.tasks.kind import kind_of
from isobench.training.optimizers import make_optimizer

LOSS_CHECK_INTERVAL = 25  # steps between checks of the loss on a GPU, because each check makes it wait
END_LR = 1e-7  # where polynomial decay ends: transformers' default


class ReportedEpoch(NamedTuple):
    """The epoch that is reported so far, with what is written of its examples: dev split -> name -> values, [N]."""

    epoch: Epoch
    outputs: dict[str, dict[str, Any]]


class FineTuningModule(pl.LightningModule):
    """Base class of the modules that isobench trains; subclasses define the steps and the scores of an epoch.

    ``history`` holds an entry for every evaluated epoch, ``best`` the reported epoch's entry and outputs. Callbacks
    put their measures of an epoch into ``observed``, from where they go into the epoch's entry.
    """

    bad_step: Tensor
    references: list[list[str]]
    long_evaluation = False  # evaluations take long: save just before each, and let a signal stop them

    def __init__(self, cfg: Config, chain: Chain, total_steps: int) -> None:
        super().__init__()
        self.cfg, self.chain, self.total_steps = cfg, chain, total_steps
        self.observed: dict[str, Any] = {}  # what callbacks measured in this epoch
        # What monitors measure before the first step; None where the dev set is to be evaluated once.
        self.isotropy_before: dict[str, float] | None = {} if cfg.evaluation.every != LAST_EPOCH else None
        self.history: list[Epoch] = []
        self.best: ReportedEpoch | None = None
        self.warnings: list[str] = []  # for the run's record
        self.dropout_numbers: DropoutNumbers | None = None  # the random numbers of dropout, unless torch draws them
        self.register_buffer("bad_step", torch.tensor(-1), persistent=False)

    def matrices(self) -> dict[str, Callable[[], Tensor]]:
        """Return functions by name that return matrices [V, d]: penalties act on them, and monitors measure them."""
        raise NotImplementedError

    def count_vectors(self, tokens: Any, calibration: Calibration) -> np.ndarray:
        """Count the vectors that a method reads of each training example, [N]."""
        raise NotImplementedError

    def compute_vectors(self, batch: dict[str, Any], calibration: Calibration | None = None) -> Tensor:
        """Compute what a method reads of the training set for `Calibration.prepare`, [B, d]."""
        raise NotImplementedError

    def export(self, folder: Path) -> tuple[dict[str, Any], list[str]]:
        """Write the model's weights; return entries of isobench.json, and what a reader has to load by himself."""
        save_file(copy_state(self), folder / "module.safetensors")
        return {"load_with": "load_state_dict"}, [f"the module {type(self).__name__} (module.safetensors)"]

    @property
    def width(self) -> int:
        """The width d of the vectors that the first method gets."""
        return int(next(iter(self.chain)).dim)

    def compute_total_loss(
        self, loss: Tensor, method_inputs: list[Tensor], index: int, token_states: Tensor | None = None
    ) -> Tensor:
        """Add the methods' losses to the task's; check and log the sum, and weight it for gradient accumulation.

        ``index``: the batch's number in its epoch. ``method_inputs``: the embeddings that each method received.
        ``token_states``: states of all tokens in all layers, [M, d], if a method reads them.
        """
        for method_loss in self.chain.losses(method_inputs, self.matrices(), token_states):
            loss = loss + method_loss
        self._note_non_finite_loss(loss.detach())
        self.log("train/loss", loss.detach(), prog_bar=True)
        return loss * self._accumulation_weight(index)

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        if self.logger is None or (self.global_step + 1) % self.trainer.log_every_n_steps:
            return
        self.log("train/lr", optimizer.param_groups[0]["lr"])
        if self.cfg.trainer.precision != "16-mixed":  # its gradients are still multiplied by the loss scale here
            gradients = [p.grad for p in self.parameters() if p.grad is not None]
            self.log("train/gradient_norm", nn.utils.get_total_norm(gradients))

    def _accumulation_weight(self, index: int) -> float:
        """Return the factor that makes a step's gradient the mean over its batches.

        Lightning divides every loss by ``accumulate``. An epoch's last step may have fewer batches, and then needs a
        factor above 1.
        """
        accumulate = self.cfg.optimization.accumulate
        if accumulate == 1:
            return 1.0
        first = index - index % accumulate  # batch of this step
        return accumulate / min(accumulate, self.trainer.num_training_batches - first)

    def _note_non_finite_loss(self, loss: Tensor) -> None:
        """Remember on the device the first step whose loss is not finite; on a GPU check only now and then."""
        new = ~torch.isfinite(loss) & (self.bad_step < 0)
        self.bad_step = torch.where(new, self.global_step + 1, self.bad_step)
        if self.device.type == "cpu" or self.global_step % LOSS_CHECK_INTERVAL == 0:
            self._raise_if_non_finite()

    def _raise_if_non_finite(self) -> None:
        if (step := int(self.bad_step)) >= 0:
            raise RunFailure("non_finite_loss", f"the loss is not finite at step {step}", step)

    def on_train_epoch_end(self) -> None:
        self._raise_if_non_finite()
        if self.history and self.history[-1].epoch == self.current_epoch + 1:
            self._add_late_measures()  # Lightning ends an epoch for its callbacks first

    def on_train_end(self) -> None:
        self._add_late_measures()

    def on_validation_epoch_start(self) -> None:
        self.texts: dict[int, dict[int, str]] = {}

    def note_texts(self, position: int, index: Tensor, texts: Sequence[str]) -> None:
        """Note what is predicted for the examples ``index`` [B] of a dev split, where predictions are texts."""
        self.texts.setdefault(position, {}).update(zip(index.tolist(), texts, strict=True))

    def score_further(self, position: int) -> dict[str, float]:
        """Compute what is noted of a dev split beside its metrics, such as a loss."""
        return {}

    def on_validation_epoch_end(self) -> None:
        """Score the texts that validation noted, split by split, against ``references``, which a subclass sets."""
        self._raise_if_non_finite()
        scores, outputs, task = {}, {}, self.cfg.task
        for position, split in enumerate(task.evaluated):
            further, references = self.score_further(position), self.references[position]
            texts = [self.texts[position][place] for place in range(len(references))]
            metrics = kind_of(task).score(task, references, texts)
            scores[split] = {**metrics, **further, "constant_predictor": is_constant(texts)}
            outputs[split] = {"reference": references, "hypothesis": texts}
        self.texts = {}
        self.record_epoch(scores, outputs)

    def record_epoch(self, scores: dict[str, dict[str, Any]], outputs: dict[str, dict[str, Any]]) -> None:
        """Append an epoch to the history, keep its outputs if it is the reported one so far, and log its scores.

        ``scores``: dev split -> its metrics, and ``constant_predictor``. ``outputs``: as in ``write_predictions``.
        """
        splits = self.cfg.task.evaluated
        decisive = (splits[0], HELD_OUT if HELD_OUT in scores else splits[0])  # reported, and selected by
        score, selection = (nan_to_zero(scores[split][self.cfg.task.primary]) for split in decisive)
        named = {"epoch": self.current_epoch + 1, "step": self.global_step, "score": score, "selection": selection}
        epoch = self._add_observed({**scores, **named})
        self.history.append(epoch)
        takes_last = self.cfg.optimization.report == "last"
        if takes_last or self.best is None or epoch.selection > self.best.epoch.selection:
            self.best = ReportedEpoch(epoch, outputs)
        for split in splits:
            metrics = epoch.metrics(split)
            for name in (*self.cfg.task.metrics, *({"loss"} & metrics.keys())):
                self.log(f"dev/{split}/{name}", metrics[name])
        self.log(f"dev/{self.cfg.task.primary}", epoch.selection, prog_bar=True)

    def on_validation_end(self) -> None:
        self._add_late_measures()

    def _add_late_measures(self) -> None:
        """Add to the newest epoch what callbacks measured after it was scored."""
        if self.observed and self.history:
            before = self.history[-1]
            self.history[-1] = self._add_observed(before.model_dump(exclude_unset=True))
            if self.best and self.best.epoch is before:
                self.best = ReportedEpoch(self.history[-1], self.best.outputs)

    def _add_observed(self, entries: dict[str, Any]) -> Epoch:
        """Make an epoch of its entries and of what callbacks measured, which may replace none of them."""
        if taken := sorted(self.observed.keys() & entries):
            raise UserError(f"a monitor's measures can't be called {', '.join(taken)}: the epoch has these entries")
        observed, self.observed = self.observed, {}
        return Epoch.model_validate({**entries, **_to_plain_numbers(observed)})

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["lanes"] = self.dropout_numbers.get_state() if self.dropout_numbers else None
        checkpoint["isotropy_before"] = self.isotropy_before
        checkpoint["history"] = [epoch.model_dump(exclude_unset=True) for epoch in self.history]
        checkpoint["best"] = {}
        if self.best:
            outputs = {
                split: {  # tensors, because weights_only loading refuses arrays
                    name: torch.as_tensor(values) if isinstance(values, np.ndarray) else values
                    for name, values in output.items()
                }
                for split, output in self.best.outputs.items()
            }
            checkpoint["best"] = {"epoch": self.best.epoch.model_dump(exclude_unset=True), "outputs": outputs}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if self.dropout_numbers and checkpoint["lanes"]:
            self.dropout_numbers.set_state(checkpoint["lanes"])
        elif bool(self.dropout_numbers) != bool(checkpoint["lanes"]):
            self.warnings.append("dropout changed between torch's and lanes when the run went on, on another device")
        self.isotropy_before = checkpoint.get("isotropy_before")  # earlier checkpoints lack it
        self.history = [Epoch.model_validate(entry) for entry in checkpoint["history"]]
        if best := checkpoint["best"]:
            for output in best["outputs"].values():
                output.update({name: v.numpy() if isinstance(v, Tensor) else v for name, v in output.items()})
            self.best = ReportedEpoch(Epoch.model_validate(best["epoch"]), best["outputs"])

    def list_vocabularies(self) -> list[Tensor]:
        """List the matrices with a row for each token: the input embedding, and a generator's output."""
        matrices = {name: matrix() for name, matrix in self.matrices().items()}
        return [matrix for matrix in matrices.values() if len(matrix) == len(matrices["vocabulary"])]

    def list_hidden_matrices(self) -> list[Tensor]:
        """List the matrices that are trained, but for embeddings, the head and a method's own."""
        embeddings = [p for m in self.modules() if isinstance(m, nn.Embedding) for p in m.parameters()]
        own = [p for group in self.chain.parameter_groups() for p in group["params"]]
        others = {id(p) for p in (*embeddings, *own, *(matrix() for matrix in self.matrices().values()))}
        return [p for p in self.parameters() if p.requires_grad and p.ndim == 2 and id(p) not in others]

    def configure_optimizers(self) -> dict[str, Any]:
        """Make the optimiser, without weight decay on biases and norms, and the schedule; methods add own groups."""
        o = self.cfg.optimization
        method_groups = self.chain.parameter_groups()
        grouped = {id(p) for group in method_groups for p in group["params"]}
        rest = [p for p in self.parameters() if p.requires_grad and id(p) not in grouped]
        groups = [
            {"params": [p for p in rest if p.ndim > 1], "weight_decay": o.weight_decay},
            {"params": [p for p in rest if p.ndim <= 1], "weight_decay": 0.0},
            *({"weight_decay": o.weight_decay} | group for group in method_groups),
        ]
        fused = o.clip is None or self.cfg.trainer.precision == "32-true"  # Lightning's rule for mixed precision
        optimizer = make_optimizer(o, groups, self.list_vocabularies(), self.list_hidden_matrices(), fused)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, partial(scale_learning_rate, o, self.total_steps))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def copy_state(module: nn.Module) -> dict[str, Tensor]:
    """Copy a module's tensors to the CPU, by their names."""
    return {name: tensor.detach().cpu().clone().contiguous() for name, tensor in module.state_dict().items()}


def scale_learning_rate(o: Optimization, total_steps: int, step: int) -> float:
    """Return the factor of every learning rate at a step: linear warm-up, then ``optimization.schedule``.

    ``linear`` falls to 0, ``constant`` stays at 1, ``polynomial`` falls to 1e-7 / ``lr`` and stays there.
    Linear and constant give the same bits as the schedules of transformers. Polynomial differs from transformers' by
    rounding, less than 1e-12 of the rate. It keeps its own formula, so that recorded runs can be repeated to the bit.
    """
    warmup_steps = min(math.ceil(o.warmup * total_steps), total_steps - 1)
    if step < warmup_steps:
        return step / warmup_steps
    if o.schedule == "constant":
        return 1.0
    end = END_LR / o.lr if o.schedule == "polynomial" else 0.0
    left = max(0.0, (total_steps - step) / max(1, total_steps - warmup_steps))
    return end + (1.0 - end) * left


def _to_plain_numbers(value: Any) -> Any:
    """Copy what monitors measured with Python's numbers and lists in the place of tensors and NumPy's."""
    if isinstance(value, Mapping):
        return {name: _to_plain_numbers(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_plain_numbers(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value
