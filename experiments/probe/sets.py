"""Labelled texts for probes: ``<data.root>/probe/<name>/<split>.parquet``, with the columns text and label."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from isobench.common.errors import UserError
from isobench.common.terminal import name_some, print_note
from isobench.data.labels import check_classes, format_labels
from isobench.data.sources import check_texts
from isobench.data.tables import read_columns, read_field

if TYPE_CHECKING:  # late: a command line is read without it
    import numpy as np

EVALUATED = ("test", "validation")  # the first that a set has is evaluated


@dataclass
class LabelledTexts:
    """Hold N texts and the names of their classes, [N]."""

    texts: list[str]
    labels: "np.ndarray"


def find_probe_folder(root: str | None, name: str) -> Path:
    """Return the folder of a set."""
    return Path(str(root)).expanduser() / "probe" / name


def read_splits(folder: Path, splits: Sequence[str]) -> list[LabelledTexts]:
    """Read splits of a set, whose classes are checked together and are those of the first split.

    Their order is that of the files, on which MTEB's draws depend.
    """
    read = [_read_split(folder, split) for split in splits]
    check_classes([label for own in read for label in own.labels.tolist()], f"the set {folder.name}")
    known = Counter(read[0].labels.tolist())
    print_note(f"{folder.name}: classes {name_some([f'{name} ({count})' for name, count in sorted(known.items())])}")
    for split, own in zip(splits, read, strict=True):
        own_classes = set(own.labels.tolist())
        if unknown := sorted(own_classes - known.keys()):
            raise UserError(f"the set {folder.name}: {splits[0]} has no example of {', '.join(unknown)} of {split}")
        if lacking := sorted(known.keys() - own_classes):
            print_note(f"{folder.name}: {split} has no example of {name_some(lacking)}")
    if rare := [name for name, count in known.items() if count == 1]:
        print_note(f"{folder.name}: {splits[0]} has a single example of {', '.join(rare)}: is it a mistake?")
    return read


def _read_split(folder: Path, split: str) -> LabelledTexts:
    import numpy as np

    file = folder / f"{split}.parquet"
    table = read_columns(file, ("text", "label"))
    texts = check_texts(read_field(table, "text"), "text", str(file))
    return LabelledTexts(texts, np.array(format_labels(read_field(table, "label"), f"{file}, column label,")))


def read_probe_set(root: str | None, name: str) -> tuple[LabelledTexts, LabelledTexts | None]:
    """Read the training split of a set and the split that is evaluated; None if the set has one split."""
    folder = find_probe_folder(root, name)
    evaluated = next((split for split in EVALUATED if (folder / f"{split}.parquet").is_file()), None)
    unread = sorted({file.stem for file in folder.glob("*.parquet")} - {"train", *EVALUATED})
    if unread and evaluated is None:
        raise UserError(
            f"{folder} has {name_some(unread)}, which is not read: call what is evaluated test or validation"
        )
    train, *others = read_splits(folder, ["train", *([evaluated] if evaluated else [])])
    if not others:
        return train, None
    (test,) = others
    known = {text.strip() for text in train.texts}
    if 100 * (repeated := sum(text.strip() in known for text in test.texts)) > len(test.texts):
        print_note(f"{name}: {repeated:,} of {len(test.texts):,} rows in {evaluated} are in train too")
    return train, test
