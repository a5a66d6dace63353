"""Labelled texts for probes: ``<data.root>/probe/<name>/<split>.parquet``, with the columns text and label."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isobench.common.errors import UserError
from isobench.common.terminal import name_some, print_note
from isobench.data.labels import check_classes, format_labels
from isobench.data.sources import check_texts
from isobench.data.tables import read_fields

if TYPE_CHECKING:  # late: a command line is read without it
    import numpy as np

EVALUATED = ("test", "validation")  # the first that a set has is evaluated


@dataclass
class LabelledTexts:
    """Hold N texts and the names of their classes, [N]."""

    texts: list[str]
    labels: "np.ndarray"


def check_splits(name: str, splits: Mapping[str, LabelledTexts]) -> None:
    """Check the classes of a set's splits together, which are those of the first split; print them with counts."""
    first, *_ = splits
    check_classes([label for own in splits.values() for label in own.labels.tolist()], f"the set {name}")
    known = Counter(splits[first].labels.tolist())
    print_note(f"{name}: classes {name_some([f'{label} ({count})' for label, count in sorted(known.items())])}")
    for split, own in splits.items():
        own_classes = set(own.labels.tolist())
        if unknown := sorted(own_classes - known.keys()):
            raise UserError(f"the set {name}: {first} has no example of {', '.join(unknown)} of {split}")
        if lacking := sorted(known.keys() - own_classes):
            print_note(f"{name}: {split} has no example of {name_some(lacking)}")
    if rare := [label for label, count in known.items() if count == 1]:
        print_note(f"{name}: {first} has a single example of {', '.join(rare)}: is it a mistake?")


def make_labelled_texts(texts: list[Any], labels: list[Any], where: str) -> LabelledTexts:
    """Make labelled texts of two columns, in their order, and check them; errors name the file ``where`` they are."""
    import numpy as np

    return LabelledTexts(
        check_texts(texts, "text", where), np.array(format_labels(labels, f"{where}, column label,"))
    )


def read_probe_set(root: str | None, name: str) -> tuple[LabelledTexts, LabelledTexts | None]:
    """Read the training split of a set and the split that is evaluated; None if the set has one split."""
    folder = Path(str(root)).expanduser() / "probe" / name
    evaluated = next((split for split in EVALUATED if (folder / f"{split}.parquet").is_file()), None)
    unread = sorted({file.stem for file in folder.glob("*.parquet")} - {"train", *EVALUATED})
    if unread and evaluated is None:
        raise UserError(
            f"{folder} has {name_some(unread)}, which is not read: call what is evaluated test or validation"
        )
    files = {split: folder / f"{split}.parquet" for split in ("train", evaluated) if split}
    splits = {
        split: make_labelled_texts(*read_fields(file, ("text", "label")), str(file)) for split, file in files.items()
    }
    check_splits(name, splits)
    train, test = splits["train"], splits.get(str(evaluated))
    known = set(map(_fold, train.texts))
    of = len((test or train).texts)
    if test is None:
        repeated, what = of - len(known), "texts stand there before: folds share them"
    else:
        repeated, what = sum(_fold(text) in known for text in test.texts), f"rows in {evaluated} are in train too"
    if 100 * repeated > of:
        print_note(f"{name}: {repeated:,} of {of:,} {what}")
    return train, test


def _fold(text: str) -> str:
    """Return a text as most encoders see it: in small letters, with single blanks."""
    return " ".join(text.split()).casefold()
