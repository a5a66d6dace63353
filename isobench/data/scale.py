"""Describe how a run's data and encoder differ from its paper's.

A record keeps only what is true without a paper. What the printed tables decide is said when a table is made, so that
a corrected published.yaml counts for runs that have ended too.
"""

import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from isobench.common.terminal import format_count
from isobench.config.schema import Config
from isobench.data import sources, weights
from isobench.data.weights import format_encoder_name
from isobench.papers.description import find_task, read_paper
from isobench.papers.folders import find_papers
from isobench.papers.published import PublishedTable, load_tables
from isobench.tasks.kind import kind_of

READ_FROM = "read from "
OF_GRID = " of the grid's "
LAPTOP = "laptop"  # the papers' own protocol without their encoders and with their small tasks alone


def find_scale_differences(cfg: Config, recorded: Iterable[str] | None = None) -> list[str]:
    """Return how a run's encoder and data differ from the paper's, one phrase each.

    The paper's are the encoders and tasks of the tables that the run's experiment names. If it names none, they are
    the encoders of all tables of the paper, the tasks that paper.yaml describes, and what the hub has under the name
    of the encoder or task. Without a paper, or if its folder is not here, only what is true without one is said.

    ``recorded`` is what the record of an ended run says. Only the names of the files that it read are taken from it,
    because ``data.root`` may have others by now.
    """
    files: list[str] = []
    if recorded is not None:
        cfg = replace(cfg, data=replace(cfg.data, root=None))
        files = [phrase for phrase in recorded if phrase.startswith(READ_FROM)]
    differences = find_encoder_differences(cfg) + find_task_differences(cfg) + find_grid_differences(cfg) + files
    return differences if cfg.experiment.paper in find_papers() else drop_paper_remarks(differences)


def drop_paper_remarks(differences: list[str]) -> list[str]:
    """Keep the differences that don't mention the paper, such as a reduced training set."""
    return [phrase for phrase in differences if not phrase.endswith(("the paper", "the paper's"))]


def find_encoder_differences(cfg: Config) -> list[str]:
    """Return how a run's encoder differs from the paper's."""
    if cfg.encoder.scratch is not None:
        return [f"encoder {cfg.encoder.name} is randomly initialised"]
    name, named = format_encoder_name(cfg.encoder), _list_tables(cfg)
    is_from_hub = bool(cfg.encoder.hub) and weights.find_encoder_source(cfg.encoder) != "path"
    is_papers = any(name in table.cells for table in named or _load_tables(cfg).values())
    is_papers |= not named and is_from_hub and name == cfg.encoder.name
    if is_papers:
        return []
    theirs = _list_left_out(cfg, "encoder")
    return [f"encoder {name} in the place of {', '.join(theirs)}" if theirs else f"encoder {name} is not the paper's"]


def find_task_differences(cfg: Config) -> list[str]:
    """Return how a run's data differ from the paper's."""
    notes, task, kind = [], cfg.task, kind_of(cfg.task)
    folder = find_papers().get(cfg.experiment.paper or "")
    of_paper = read_paper(folder).tasks.get(task.name) if folder else None
    described = of_paper
    if described is None and (kind.is_corpus or task.reduced):
        described = find_task(task.name)
    if not _is_of_paper(cfg, folder, of_paper is not None, described is not None):
        notes.append(f"task {task.name} is not in the paper")
    if task.reduced != (described or {}).get("reduced"):
        notes.append(f"training set reduced to {task.reduced or 'nothing'}")
    if task.train_samples is not None:
        notes.append(f"at most {format_count(task.train_samples, 'training example')}")
    if task.held_out is not None:
        notes.append(f"{100 * task.held_out:g}% of the training examples held out to select on")
    if task.train_split != "train":
        notes.append(f"trained on {task.train_split}")
    notes += [f"{READ_FROM}{name}.parquet" for name in sources.list_partial_splits(task, cfg.data)]
    if task.dev_samples is not None:
        notes.append(f"at most {format_count(task.dev_samples, 'dev example')}")
    return [*notes, *kind.list_differences(task, of_paper or {})]


def _is_of_paper(cfg: Config, folder: Path | None, paper_describes: bool, any_describes: bool) -> bool:
    """Tell whether a run's examples may be those of its paper's task, by the first source that knows the task.

    The sources: the paper's paper.yaml, the tables that the experiment names, the paper's YAMLs, and the hub.
    """
    task, source, tables = cfg.task, sources.find_data_source(cfg.task, cfg.data), _list_tables(cfg)
    if source == "files" and task.hub is not None:  # the user's files in the place of the paper's data
        return False
    if paper_describes:
        return True
    if tables:
        columns = [column for table in tables for column in table.columns.values()]
        return any(task.name in (column.task, *column.variants) for column in columns)
    if folder and (folder / "task" / f"{task.name}.yaml").is_file():
        return True
    return source not in ("embedded", "files") and (any_describes or not kind_of(task).is_corpus)


def find_grid_differences(cfg: Config) -> list[str]:
    """Return which tasks and configurations of the grid at the paper's scale ``scale=laptop`` leaves out."""
    if cfg.scale != LAPTOP:
        return []
    notes: list[str] = []
    if tasks := _list_left_out(cfg, "task"):
        notes.append(f"tasks left out: {', '.join(tasks)}")
    ours, theirs = (_count_configurations(cfg, scale) for scale in (LAPTOP, "paper"))
    if 0 < ours < theirs:
        notes.append(f"{ours}{OF_GRID}{theirs} configurations")
    return notes


def _list_left_out(cfg: Config, setting: str) -> list[str]:
    """List the values of a setting that the grid at the paper's scale has and that at laptop scale lacks."""
    ours, theirs = (
        {value: None for sub_grid in cfg.experiment.grid.get(scale, []) for value in sub_grid.get(setting, [])}
        for scale in (LAPTOP, "paper")
    )
    return [value for value in theirs if value not in ours] if cfg.scale == LAPTOP and theirs else []


def _count_configurations(cfg: Config, scale: str) -> int:
    """Count the configurations in which a scale's grid tries the run's method on a task; 0 if it doesn't."""
    method, tuned = cfg.calibration["name"], ("optimization.", "calibration.")
    grids = [grid for grid in cfg.experiment.grid.get(scale, []) if method in grid.get("calibration", [])]
    counts = (math.prod(len(values) for key, values in grid.items() if key.startswith(tuned)) for grid in grids)
    return max(counts, default=0)


def _list_tables(cfg: Config) -> list[PublishedTable]:
    tables = _load_tables(cfg)
    return [tables[name] for name in cfg.experiment.tables if name in tables]


def _load_tables(cfg: Config) -> dict[str, PublishedTable]:
    return load_tables(cfg.experiment.paper) if cfg.experiment.paper else {}
