"""Settings of earlier versions: a record may hold them, and a run's key does."""

from typing import Any

from isobench.common.errors import UserError

# Settings of earlier versions: the value that each has now, in the keys of runs too, and what to do instead.
_NOT_NEEDED = "leave it out"
REMOVED: dict[str, tuple[Any, str]] = {
    "task.version": (1, "give a changed task another task.name"),
    "task.generation.precision": ("auto", _NOT_NEEDED),
    "encoder.version": (1, "give a changed encoder another encoder.name"),
    "encoder.first_token_only": (True, _NOT_NEEDED),
    "encoder.packing": (True, _NOT_NEEDED),
    "encoder.compile": (False, _NOT_NEEDED),
    "head.init": ("uniform", _NOT_NEEDED),
    "optimization.power": (None, "polynomial decay is linear, to 1e-7"),
    "optimization.end_lr": (None, "polynomial decay ends at 1e-7"),
    "trainer.deterministic": (True, _NOT_NEEDED),
    "trainer.dropout": ("auto", _NOT_NEEDED),
    "trainer.chunk_overhead": (None, _NOT_NEEDED),
    "trainer.progress_bar": (None, "a bar is shown in a terminal alone"),
    "checkpoint.keep": (False, "checkpoint.export=FOLDER keeps the reported model"),
    "tracking.project": ("isobench", "set the variable WANDB_PROJECT"),
    "tracking.entity": (None, "set the variable WANDB_ENTITY"),
    "tracking.mode": (None, "set the variable WANDB_MODE"),
}


def explain_removed(setting: str) -> str | None:
    """Say what to do instead of setting what earlier versions could set; None for any other setting."""
    return f"isobench has no setting {setting} any more: {REMOVED[setting][1]}" if setting in REMOVED else None


def drop_removed(name: str, plain: Any) -> Any:
    """Copy a section that an earlier version may have stored, without the settings that are gone."""
    if not isinstance(plain, dict):
        return plain
    kept = {}
    for key, value in plain.items():
        setting = f"{name}.{key}"
        if setting not in REMOVED:
            kept[key] = drop_removed(setting, value) if setting == "task.generation" else value
        elif value not in (REMOVED[setting][0], None):
            raise UserError(f"{setting}={value} is of an earlier version; {explain_removed(setting)}")
    return kept


def restore_removed(name: str, section: dict[str, Any]) -> dict[str, Any]:
    """Add to a section the settings that are gone, with the values that they have now: a run's key has them."""
    gone = {key.removeprefix(f"{name}."): value for key, (value, _) in REMOVED.items() if key.startswith(f"{name}.")}
    if name == "head" and section["name"] != "isobn":  # the others never had it
        del gone["init"]
    if name == "task" and section.get("generation"):
        generation = restore_removed("task.generation", section["generation"])
        gone["generation"] = {key: value for key, value in generation.items() if value is not None}
    return section | {key: value for key, value in gone.items() if "." not in key}  # those of generation are in it
