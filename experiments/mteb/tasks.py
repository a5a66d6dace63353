"""A task of MTEB is a YAML file: its kind, where its data are, how it is scored, what was published of it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from isobench.common.errors import refuse
from isobench.data import hub
from isobench.data.scored_pairs import ScoredPairs, make_scored_pairs
from isobench.data.tables import read_fields
from isobench.papers.folders import StrictEntries, read_checked_yaml
from isobench_papers.probe.sets import LabelledTexts, check_splits, make_labelled_texts

if TYPE_CHECKING:
    from isobench.config.schema import Data

SHIPPED = Path(__file__).with_name("tasks")
# What a kind reads, by the names that a file has unless ``columns`` says otherwise.
CLASSES, PAIRS = ("text", "label"), ("sentence1", "sentence2", "score")
TEXTS, JUDGEMENTS = ("id", "text"), ("query", "document", "relevance")


class Task(StrictEntries):
    """A task, as its file has it."""

    name: str = Field(description="MTEB's")
    kind: Literal["classification", "pairs", "retrieval"] = Field(description="how it is scored")
    main_score: str = Field(description="MTEB's main score")
    subset: str = Field(default="default", description="MTEB's name of a part, such as a language")
    folder: str | None = Field(default=None, description="of the files: below data.root, or a path of its own")
    hub: dict[str, str] | None = Field(default=None, description="instead: path, and maybe name and revision")
    columns: dict[str, str] = Field(default_factory=dict, description="name of a column -> that in the files")
    splits: dict[str, list[str]] = Field(
        default_factory=lambda: {"test": ["test"]}, description="evaluated split -> files that are read together"
    )
    train: str = Field(default="train", description="of a classification, the split whose examples are drawn")
    per_class: int = Field(default=8, description="examples of each class in a draw", ge=1)
    has_titles: bool = Field(default=False, description="of a retrieval: whether documents have a column title")
    ignore_identical_ids: bool = Field(default=False, description="of a retrieval: leave out the query's own id")
    held_out: float | None = Field(default=None, gt=0, lt=1, description="share of the only split that is evaluated")
    published: dict[str, dict[str, dict[str, Annotated[float, Field(ge=-1, le=1)]]]] = Field(
        default_factory=dict, description="encoder -> split -> metric -> published score, between 0 and 1"
    )
    misses: str | None = Field(default=None, description="why published scores can't be hit")

    def find_folder(self, data: "Data") -> Path | None:
        """Return the folder with the files; None if the hub has them."""
        return (
            None if self.folder is None else Path(str(data.root or "")).expanduser() / Path(self.folder).expanduser()
        )

    def is_absent(self, data: "Data") -> bool:
        """Return True if the files are not here and the hub is not named."""
        folder = self.find_folder(data)
        return self.hub is None if folder is None else not folder.is_dir()

    def read(self, data: "Data", split: str, columns: Sequence[str]) -> list[list[Any]]:
        """Read columns of a split's file, by their names here."""
        names = [self.columns.get(name, name) for name in columns]
        if (folder := self.find_folder(data)) is not None:
            return read_fields(folder / f"{split}.parquet", names)
        source = {"name": None, "revision": None, **(self.hub or {})}
        advice = "name a folder with its files (folder: in the task's file)"
        rows = hub.load_hub_dataset(source["path"], source["name"], source["revision"], split, self.name, advice)
        return [list(rows[name][:]) for name in names]


def find_tasks(names: Sequence[str] | None) -> list[Task]:
    """Find tasks by their names or by the paths of their files; None for all that are shipped."""
    shipped = [read_task(file) for file in sorted(SHIPPED.glob("*.yaml"))]
    if names is None:
        return shipped
    found = []
    for name in names:
        own = [read_task(Path(name).expanduser())] if name.endswith((".yaml", ".yml")) else []
        tasks = own or [task for task in shipped if task.name == name]
        known = list_names(shipped)
        refuse((not tasks, f"analysis.tasks: there is no task {name}; name a YAML file, or one of MTEB's: {known}"))
        found += tasks
    return found


def list_names(tasks: Sequence[Task]) -> str:
    return ", ".join(dict.fromkeys(task.name for task in tasks))


def read_task(file: Path) -> Task:
    """Read a task's file, and check what it says."""
    task: Task = read_checked_yaml(file, Task)
    refuse(
        ((task.folder is None) == (task.hub is None), f"{file}: give either folder or hub: where the data are"),
        (
            {*(split for by in task.published.values() for split in by)} - task.splits.keys(),
            f"{file}: published has a split that is none of {', '.join(task.splits)}",
        ),
        (task.hub is not None and "path" not in task.hub, f"{file}: hub lacks path: the data set's name"),
    )
    return task


def read_pairs(task: Task, data: "Data", split: str) -> ScoredPairs:
    """Read the scored pairs of a split, whose files come one after the other."""
    columns = [task.read(data, part, PAIRS) for part in task.splits[split]]
    joined = [[value for part in columns for value in part[place]] for place in range(3)]
    return make_scored_pairs(joined, "sentence", f"{task.name}, {split}")


def read_classes(task: Task, data: "Data", split: str) -> tuple[LabelledTexts, LabelledTexts]:
    """Read the training split and an evaluated one; with ``held_out`` both are parts of the training split."""

    def read(*parts: str) -> LabelledTexts:
        texts, labels = [], []
        for part in parts:
            own, classes = task.read(data, part, CLASSES)
            texts += own
            labels += classes
        return make_labelled_texts(texts, labels, f"{task.name}, {'+'.join(parts)}")

    training = read(task.train)
    if task.held_out is None:
        evaluated = read(*task.splits[split])
    else:
        training, evaluated = hold_out(training, task.held_out)
    check_splits(task.name, {task.train: training, split: evaluated})
    return training, evaluated


def read_search(
    task: Task, data: "Data", split: str
) -> tuple[dict[str, str], dict[str, str], list[tuple[str, str, int]]]:
    """Read documents and queries, id -> text, and the judgements of a split: query, document, grade.

    The files are ``corpus``, ``queries`` and the split's. A document's title, if it has one, stands before its text.
    """
    ids, texts = task.read(data, "corpus", TEXTS)
    ids = list(map(str, ids))  # whole numbers, in some sets
    if task.has_titles:
        (titles,) = task.read(data, "corpus", ("title",))
        texts = [f"{title or ''} {text or ''}".strip() for title, text in zip(titles, texts, strict=True)]
    queries = {str(key): text for key, text in zip(*task.read(data, "queries", TEXTS), strict=True)}
    judged = [row for part in task.splits[split] for row in zip(*task.read(data, part, JUDGEMENTS), strict=True)]
    refuse(
        (len(set(ids)) < len(ids), f"{task.name}: two documents have the same id"),
        (any(float(grade) % 1 for _, _, grade in judged), f"{task.name}: a grade is no whole number"),
    )
    judgements = [(str(query), str(document), int(grade)) for query, document, grade in judged]
    return dict(zip(ids, texts, strict=True)), queries, judgements


def hold_out(texts: LabelledTexts, share: float) -> tuple[LabelledTexts, LabelledTexts]:
    """Divide a set at random, class by class and always alike: the rest, in its order, and a share to evaluate."""
    import numpy as np
    from sklearn.model_selection import train_test_split

    rest, held = train_test_split(
        np.arange(len(texts.labels)), test_size=share, random_state=42, stratify=texts.labels
    )
    return tuple(
        LabelledTexts([texts.texts[place] for place in sorted(part)], texts.labels[np.sort(part)])
        for part in (rest, held)
    )  # type: ignore[return-value]
