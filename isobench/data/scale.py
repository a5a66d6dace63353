"""Describe how a run's data and encoder differ from its paper's, for records and tables."""

from isobench.common.terminal import format_count
from isobench.config.schema import Config
from isobench.data import sources, weights
from isobench.data.weights import format_encoder_name
from isobench.papers.description import find_task, read_paper
from isobench.papers.folders import find_papers


def find_scale_differences(cfg: Config) -> list[str]:
    """Return how a run's encoder and data differ from the paper's, one phrase each; empty if they don't."""
    return find_encoder_differences(cfg) + find_task_differences(cfg)


def drop_paper_remarks(differences: list[str]) -> list[str]:
    """Keep the differences that don't mention the paper, such as a reduced training set."""
    return [phrase for phrase in differences if not phrase.endswith(("the paper", "the paper's"))]


def find_encoder_differences(cfg: Config) -> list[str]:
    """Return how a run's encoder differs from the paper's."""
    if cfg.encoder.scratch is not None:
        return [f"encoder {cfg.encoder.name} is randomly initialised"]
    name = format_encoder_name(cfg.encoder)
    is_from_hub = cfg.encoder.hub and weights.find_encoder_source(cfg.encoder) != "path"
    return [] if is_from_hub and name == cfg.encoder.name else [f"encoder {name} is not the paper's"]


def find_task_differences(cfg: Config) -> list[str]:
    """Return how a run's data differ from the paper's."""
    notes = []
    is_special = cfg.task.generation is not None or cfg.task.reduced is not None
    printed = find_task(cfg.task.name) if is_special else None
    is_unknown = cfg.task.generation is not None and printed is None
    if is_unknown or sources.find_data_source(cfg.task, cfg.data) in ("embedded", "files"):
        notes.append(f"task {cfg.task.name} is not in the paper")
    if cfg.task.reduced != (printed.reduced if printed else None):
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
    if cfg.task.as_classes is not None and not is_paper_task(cfg):
        notes.append(f"{cfg.task.name} as {cfg.task.as_classes} classes")
    return notes


def is_paper_task(cfg: Config) -> bool:
    """Return True if the paper of a run's experiment divides the task's scores into as many classes."""
    folder = find_papers().get(cfg.experiment.paper or "")
    task = read_paper(folder).tasks.get(cfg.task.name) if folder else None
    return task is not None and task.as_classes == cfg.task.as_classes
