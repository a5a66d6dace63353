"""How a run is not at its paper's scale: what the tables say of its data and its encoder."""

from isobench.common.terminal import format_count
from isobench.config.schema import Config
from isobench.data import sources, weights

# Tasks of the isotropy-calibration paper's Tables 2, 3 and 5, and the training examples of its reduced sets.
GENERATION_TASKS = {
    "wmt16_en_ro": None, "wmt16_de_en": None, "cnn_dailymail": None,
    "wmt16_en_ro_50k": 50_000, "wmt16_de_en_50k": 50_000, "cnn_dailymail_20k": 20_000,
}  # fmt: skip
STSB_AS_CLASSES_PAPER = "isotropy_calibration"  # it trains STS-B as six classes itself (its errata.md)


def find_scale_differences(cfg: Config) -> list[str]:
    """How a run's data and encoder differ from the paper's; empty where they don't."""
    return find_encoder_differences(cfg) + find_task_differences(cfg)


def find_encoder_differences(cfg: Config) -> list[str]:
    """The same of the encoder alone."""
    if cfg.encoder.scratch is not None:
        what = "is randomly initialised: the numbers show the machinery, not the paper"
        return [f"encoder {cfg.encoder.name} {what}"]
    own = not cfg.encoder.hub or weights.find_encoder_source(cfg.encoder) == "path"
    return [f"encoder {cfg.encoder.name} is not the paper's"] if own else []


def find_task_differences(cfg: Config) -> list[str]:
    """The same of the data alone."""
    notes = []
    of_nobody = cfg.task.generation is not None and cfg.task.name not in GENERATION_TASKS
    if of_nobody or sources.find_data_source(cfg.task, cfg.data) == "embedded":
        notes.append(f"task {cfg.task.name} is not in the paper")
    if cfg.task.reduced != GENERATION_TASKS.get(cfg.task.name):
        notes.append(f"training set reduced to {cfg.task.reduced or 'nothing'}")
    if cfg.task.train_samples is not None:
        notes.append(f"at most {format_count(cfg.task.train_samples, 'training example')}")
    if cfg.task.held_out is not None:
        notes.append(f"{cfg.task.held_out:.0%} of the training examples held out to select on")
    if cfg.task.train_split != "train":
        notes.append(f"trained on {cfg.task.train_split}")
    notes += [f"read from {name}.parquet" for name in sources.list_partial_splits(cfg.task, cfg.data)]
    if cfg.task.dev_samples is not None:
        notes.append(f"at most {format_count(cfg.task.dev_samples, 'dev example')}")
    if cfg.task.as_classes is not None and cfg.experiment.paper != STSB_AS_CLASSES_PAPER:
        notes.append(f"{cfg.task.name} as {cfg.task.as_classes} classes")
    return notes
