"""Export the reported epoch's model as a folder that transformers loads (``checkpoint.export``).

``FOLDER/<run>/`` holds the model, its tokenizer and ``isobench.json``, which says what the folder is and what it
lacks. Where transformers' ``AutoModelForSequenceClassification`` has the head's layers, it loads encoder and head.
Else ``AutoModel`` loads the encoder, and ``head.safetensors`` holds pooler and classifier. transformers has no place
for a calibration: where one changes embeddings, ``calibration.safetensors`` holds its tensors, and ``isobench.json``
its settings.

Models of language, and encoder-decoders, are exported whole: ``encoder.path`` takes such a folder again.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pytorch_lightning.callbacks import Callback
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.utils import parametrize

from isobench.calibration.base import overrides_hook
from isobench.calibration.chain import Chain
from isobench.common.errors import StorageError
from isobench.common.files import (
    explain_disk_errors,
    name_system_error,
    read_json,
    sha256_file,
    write_json,
)
from isobench.config.schema import WITH_DENSE_LAYER, WITH_OWN_POOLER, Config, format_method_name
from isobench.data.weights import EXPORT_FILE
from isobench.models.encoders import GENERATORS, name_kind
from isobench.models.huggingface_head import split_head
from isobench.runs.folder import find_export_folder
from isobench.runs.identity import Identity
from isobench.training.classifier import Classifier
from isobench.training.fine_tuned import FineTuningModule
from isobench.training.instantiate import instantiate_chain
from isobench.training.language_model import LanguageModel
from isobench.training.seq2seq import Seq2Seq

HEAD_FILE, CALIBRATION_FILE = "head.safetensors", "calibration.safetensors"
# Architectures whose own classifier has dense, tanh and classifier, as head=isobn with encoder.pooling=pooler has.
LIKE_ISOBN = (*WITH_OWN_POOLER, *(name for name in WITH_DENSE_LAYER if name != "electra"))


class _Exporter(Callback):
    """Export the model after each evaluation whose epoch is the reported one so far.

    So the folder always holds the reported epoch, also when an interrupted run goes on.
    """

    def __init__(self, cfg: Config, key: str, tokenizer: Any, folder: Path) -> None:
        self.cfg, self.key, self.tokenizer, self.folder = cfg, key, tokenizer, folder

    def on_validation_end(self, trainer: Any, module: Any) -> None:
        if module.best is None or module.best.epoch.epoch != trainer.current_epoch + 1:
            return
        new = self.folder.with_name(f".{self.folder.name}.new")
        about = {"run": self.key, "epoch": module.best.epoch.epoch, "score": module.best.epoch.score}
        with explain_export_errors(self.folder.parent):
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir(parents=True)
            write_export(new, self.cfg, module, self.tokenizer, about)
            shutil.rmtree(self.folder, ignore_errors=True)
            new.rename(self.folder)


@contextmanager
def explain_export_errors(folder: Path) -> Iterator[None]:
    """Turn an OSError into a StorageError that names the folder of ``checkpoint.export``."""
    try:
        with explain_disk_errors(folder):
            yield
    except OSError as error:
        reason = name_system_error(error)
        raise StorageError(f"checkpoint.export={folder} can't be written: {reason}; name another folder") from error


def make_exporters(cfg: Config, identity: Identity, tokenizer: Any) -> list[Callback]:
    """Make the callback that exports the run's model; none without ``checkpoint.export``."""
    if cfg.checkpoint.export is None:
        return []
    folder = find_export_folder(cfg.checkpoint.export, identity.key)
    with explain_export_errors(folder.parent):  # fail before the training, not after it
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder.parent):
            pass
    return [_Exporter(cfg, identity.key, tokenizer, folder)]


def write_export(
    folder: Path, cfg: Config, module: Classifier | LanguageModel | Seq2Seq, tokenizer: Any, about: dict[str, Any]
) -> None:
    """Write the model, what transformers can't express of it, and ``isobench.json``; ``about``: entries of that."""
    if backend := getattr(tokenizer, "backend_tokenizer", None):  # else it is saved with what its last call set
        backend.no_truncation()
        backend.no_padding()
    tokenizer.save_pretrained(folder)
    lacks = []
    if not isinstance(module, Classifier):
        about |= {"load_with": GENERATORS[name_kind(cfg.task)][0]}
        module.model.save_pretrained(folder)
        if isinstance(module, Seq2Seq):
            module.generation_config.save_pretrained(folder)
    elif _is_expressible(cfg, module):
        about |= {"load_with": "AutoModelForSequenceClassification"}
        build_transformers_model(cfg, module).save_pretrained(folder)
    else:
        about |= {"load_with": "AutoModel", "pooling": module.encoder.pooling, "layer": module.encoder.layer}
        module.encoder.model.save_pretrained(folder, state_dict=_copy_state(module.encoder.model))  # type: ignore[operator]
        save_file(
            _copy_state(nn.ModuleDict({"pooler": module.pooler, "classifier": _make_plain(module.head)})),
            folder / HEAD_FILE,
        )
        lacks.append(f"the head ({HEAD_FILE})")
    if any(overrides_hook(calibration, "forward") for calibration in module.chain):
        save_file(_copy_state(module.chain), folder / CALIBRATION_FILE)
        lacks.append(f"the calibration {format_method_name(cfg.calibration)} ({CALIBRATION_FILE})")
    task = cfg.task
    about |= {"labels": task.labels, "text": list(task.text), "max_length": task.max_length}
    about |= {"calibration": cfg.calibration, "dim": _read_width(module), "lacks": lacks}
    about |= {"sha256": {file.name: sha256_file(file) for file in sorted(folder.iterdir()) if file.is_file()}}
    write_json(folder / EXPORT_FILE, about)


def _read_width(module: FineTuningModule) -> int:
    return int(next(iter(module.chain)).dim)


def _is_expressible(cfg: Config, module: Classifier) -> bool:
    model: Any = module.encoder.model
    if module.head.in_features != _read_width(module) or cfg.task.as_classes is not None:
        return False
    if cfg.head.name == "huggingface":
        return True
    return module.encoder.pooling == "pooler" and model.config.model_type in LIKE_ISOBN


def build_transformers_model(cfg: Config, module: Classifier) -> Any:
    """Build transformers' model for sequence classification with the weights of encoder, pooler and classifier."""
    from transformers import AutoModelForSequenceClassification

    encoder: Any = module.encoder.model
    names = cfg.task.labels or ["score"]
    config = type(encoder.config).from_dict(encoder.config.to_dict())
    config.id2label, config.label2id = dict(enumerate(names)), {name: number for number, name in enumerate(names)}
    config.problem_type = "regression" if cfg.task.labels is None else "single_label_classification"
    model = AutoModelForSequenceClassification.from_config(config)
    base = getattr(model, model.base_model_prefix)
    base.load_state_dict(_copy_state(encoder), strict=False)  # only the pooler, which comes next, is not in it
    own_pooler = getattr(base, "pooler", None)
    parts = split_head(model, own_pooler if own_pooler is not None else nn.Identity())
    tensors = module.pooler.state_dict().values()  # the layers have other names in isobench
    parts.pooler.load_state_dict(dict(zip(parts.pooler.state_dict(), tensors, strict=True)))
    parts.classifier.load_state_dict(_copy_state(_make_plain(module.head)))
    return model.eval()


def _make_plain(head: nn.Module) -> nn.Module:
    """Return a classifier whose weight is a parameter: itself, unless its weight is trained as a product."""
    if not parametrize.is_parametrized(head):
        return head
    plain = nn.Linear(head.in_features, head.out_features)  # type: ignore[arg-type]
    plain.load_state_dict({"weight": head.weight, "bias": head.bias})
    return plain


def _copy_state(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().clone().contiguous() for name, tensor in module.state_dict().items()}


def load_calibration(folder: str | Path) -> Chain:
    """Load the calibration of an exported folder, in evaluation mode.

    Call it as ``chain(h, pooler)``: it returns calibrated embeddings and each method's input. Load only folders that
    you trust: the classes that ``isobench.json`` names are imported and called.

    Raises:
        FileNotFoundError: the folder has no calibration.
        ValueError: a file was changed after it was exported.
    """
    about_file, file = Path(folder) / EXPORT_FILE, Path(folder) / CALIBRATION_FILE
    try:
        about = read_json(about_file)
    except ValueError as error:
        raise ValueError(f"{about_file} is damaged or was changed: export the run again") from error
    if about["sha256"].get(file.name) != sha256_file(file):
        raise ValueError(f"{file} was changed after it was exported: export the run again")
    chain = instantiate_chain(about["calibration"], about["dim"])
    chain.load_state_dict(load_file(file))
    chain.eval()
    return chain
