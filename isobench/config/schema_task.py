"""The typed config of a task: what is read, how it is evaluated, and how texts are generated."""

from dataclasses import dataclass, field

from omegaconf import MISSING

HELD_OUT = "held_out"  # what a held-out share of the training set is called among the dev splits


@dataclass
class Generation:
    """What makes a task one of translation or summarisation, and how hypotheses are searched.

    ``target``: the column that is to be generated (``translation.ro`` is a field of a struct). ``languages``: of
    source and target, for tokenizers that mark them (mBART). ``instruction``: put before every source for encoders
    that want one (T5). ``grammar``: examples made by data/generated.py. ``diacritics``, of Romanian: ``keep``,
    ``comma_below`` (cedillas become commas) or ``removed``. ``max_length``: tokens of a target and of a hypothesis;
    ``min_length``: of a hypothesis. ``precision``: of the search: ``auto`` is bf16 on a GPU that has it, else 32.
    """

    target: str = MISSING
    languages: list[str] | None = None
    instruction: str | None = None
    grammar: str | None = None
    diacritics: str = "keep"
    max_length: int = 128
    min_length: int = 0
    beams: int = 4
    length_penalty: float = 1.0
    no_repeat_ngram: int = 0
    precision: str = "auto"


@dataclass
class Task:
    """One sentence or sentence-pair task, or with ``generation`` one of translation or summarisation.

    ``held_out``: share of the training examples that is not trained on; it, not the dev set, then decides which epoch
    (and, by ``selection.rule: held_out``, which configuration) is reported. ``folder``: of its files in ``data.root``
    (``glue/<task>``). ``reduced``: training examples of a paper's own smaller training set. It and
    ``train_samples`` take the examples whose index hashes lowest, with ``sample_seed`` another choice of them.
    """

    name: str = MISSING
    version: int = 1
    hub: str | None = None
    subset: str | None = None
    revision: str | None = None
    embedded: bool = False
    folder: str | None = None
    text: list[str] = MISSING
    labels: list[str] | None = None
    label_range: list[float] | None = None
    as_classes: int | None = None
    metrics: list[str] = MISSING
    primary: str = MISSING
    train_split: str = "train"
    dev_splits: list[str] = field(default_factory=lambda: ["validation"])
    held_out: float | None = None
    train_samples: int | None = None
    dev_samples: int | None = None
    max_length: int = 256
    reduced: int | None = None
    sample_seed: int | None = None
    generation: Generation | None = None

    @property
    def evaluated(self) -> list[str]:
        """The dev splits, and the held-out share if there is one."""
        return [*self.dev_splits, *([HELD_OUT] if self.held_out is not None else [])]
