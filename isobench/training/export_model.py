"""Export the reported epoch's model as a folder that transformers loads (``checkpoint.export``).

``FOLDER/<run>/`` holds the model, its tokenizer and ``isobench.json``, which says what the folder is and what it
lacks. Where transformers' ``AutoModelForSequenceClassification`` has the head's layers, it loads encoder and head.
Else ``AutoModel`` loads the encoder, and ``head.safetensors`` holds pooler and classifier. transformers has no place
for a calibration: where one changes embeddings, ``calibration.safetensors`` holds its tensors, and ``isobench.json``
its settings.

Models of language, and encoder-decoders, are exported whole: ``encoder.path`` takes such a folder again.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pytorch_lightning.callbacks import Callback
from safetensors.torch import load_file, save_file

from isobench.calibration.base import overrides_hook
from isobench.calibration.chain import Chain
from isobench.common.files import (
    explain_disk_errors,
    explain_output_errors,
    read_json,
    sha256_file,
    write_json,
)
from isobench.config.schema import Config, format_method_name
from isobench.data.weights import EXPORT_FILE
from isobench.runs.folder import find_export_folder
from isobench.runs.identity import Identity
from isobench.training.fine_tuned import FineTuningModule, copy_state
from isobench.training.instantiate import instantiate_chain

CALIBRATION_FILE = "calibration.safetensors"


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
    """A context for code that writes below the folder of ``checkpoint.export``."""
    with explain_output_errors(folder, "checkpoint.export"), explain_disk_errors(folder):
        yield


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


def write_export(folder: Path, cfg: Config, module: FineTuningModule, tokenizer: Any, about: dict[str, Any]) -> None:
    """Write the model, what transformers can't express of it, and ``isobench.json``; ``about``: entries of that."""
    if backend := getattr(tokenizer, "backend_tokenizer", None):  # else it is saved with what its last call set
        backend.no_truncation()
        backend.no_padding()
    tokenizer.save_pretrained(folder)
    inputs = getattr(tokenizer, "model_input_names", ())  # word vectors' has none
    if not cfg.encoder.token_type_ids and "token_type_ids" in inputs:
        file = folder / "tokenizer_config.json"
        names = [name for name in inputs if name != "token_type_ids"]
        file.write_text(json.dumps(json.loads(file.read_text()) | {"model_input_names": names}, indent=2))
    own, lacks = module.export(folder)
    if any(overrides_hook(calibration, "forward") for calibration in module.chain):
        save_file(copy_state(module.chain), folder / CALIBRATION_FILE)
        lacks.append(f"the calibration {format_method_name(cfg.calibration)} ({CALIBRATION_FILE})")
    task = cfg.task
    about |= own | {"labels": task.labels, "text": list(task.text), "max_length": task.max_length}
    about |= {"calibration": cfg.calibration, "dim": module.width, "lacks": lacks}
    about |= {"sha256": {file.name: sha256_file(file) for file in sorted(folder.iterdir()) if file.is_file()}}
    write_json(folder / EXPORT_FILE, about)


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
