"""A kind of task of your own: tag the words of texts, such as names (IOB2), scored by the F1 of whole entities."""

from collections.abc import Iterator, Sequence
from typing import Any

from isobench.common.errors import UserError
from isobench.config.schema import Config, Data, Task
from isobench.data.sources import choose_own_rows, find_own_file, select_by_hash
from isobench.kinds import Examples, Kind


class Tagging(Kind):
    """Give each word a tag."""

    metrics = ("entity_f1",)
    reads = ("encoder.pooling",)  # an encoder's YAML may set it; words are not pooled

    def check(self, cfg: Config) -> None:
        super().check(cfg)
        if not cfg.data.files:
            raise UserError(f"task={cfg.task.name} reads 'data.files={{train: FILE.tsv, validation: FILE.tsv}}'")

    def read(self, task: Task, data: Data, split: str, limit: int | None = None) -> Examples:
        """Read sentences, their words apart by blanks, and as labels their tags likewise."""
        file = find_own_file(task, data, split)
        blocks = file.read_text(encoding="utf-8").split("\n\n")
        sentences = [[line.split("\t") for line in block.splitlines() if line] for block in blocks]
        if any(len(word) != 2 or " " in "".join(word) for sentence in sentences for word in sentence):
            raise UserError(f"{file}: a line must have a word and a tag without blanks, and a tab between them")
        pairs = [tuple(map(" ".join, zip(*sentence, strict=True))) for sentence in sentences if sentence]
        pairs = [pairs[row] for row in choose_own_rows(task, data, split, pairs)]
        chosen = select_by_hash(len(pairs), len(pairs) if limit is None else limit)
        return Examples([[pairs[row][0] for row in chosen]], [pairs[row][1] for row in chosen])

    def build(self, cfg: Config, identity: Any) -> Any:
        from tagger import build_parts  # imports torch

        return build_parts(cfg, identity, self)

    def score(self, task: Task, labels: Any, predictions: Any) -> dict[str, float]:
        """Compute F1 = 2 hits / (entities + predicted entities) over all sentences."""
        true, found = (set(list_entities(side)) for side in (labels, predictions))
        return {"entity_f1": 2 * len(true & found) / max(1, len(true) + len(found))}


def list_entities(sentences: Sequence[str]) -> Iterator[tuple[int, int, int, str]]:
    """Yield sentence, start, end and type of each entity: B- begins one, I- of the same type continues it."""
    for number, tags in enumerate(sentences):
        start, kind = 0, ""
        for place, tag in enumerate([*tags.split(" "), "O"]):
            if not kind or tag != f"I-{kind}":
                if kind:
                    yield number, start, place, kind
                start, kind = place, tag[2:]
