"""The dials of the study ``isotropy_dial``, and what its runs gave: a tidy row a run, arrays with a row a seed."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from isobench.analyses.rows import TidyRow, group_rows, list_distinct, select_rows
from isobench.config.schema import format_method_name

if TYPE_CHECKING:  # importing it takes seconds
    from isobench.analyses.subject import Subject

Group = tuple[str, str]  # encoder and task, by their names in tables
STUDY = ("encoder", "task", "complete")  # columns of all rows
PLAIN = "none"  # the method of plain fine-tuning
FINISHED = "finished"
WHOLE = "all doses"  # what a slope is fitted over; other names are of a part of them
WITHIN, ACROSS = "within one dial", "across dials"  # kinds of correlations
GIVEN_DIAL, GIVEN_DOSE = "across, given the dial", "across, given the dial and its dose"
MEASURES = {  # of the calibrated embeddings of the dev set, by their names in a record
    "embedding/ev1": "EV1",
    "embedding/isoscore": "IsoScore",
    "embedding/i1": "I1",
    "embedding/i2": "I2",
    "embedding/average_cosine": "average cosine",
    "embedding/effective_rank": "effective rank",
}
MORE_ISOTROPIC = dict(zip(MEASURES, (-1, 1, 1, -1, -1, 1), strict=True))  # the sign of a change to more isotropy
TURNED = ("embedding/ev1", "embedding/isoscore")  # a dial turns isotropy if its doses change these
VOCABULARY_MEASURES = {
    name.replace("embedding/", "vocabulary/"): f"vocabulary's {label}" for name, label in MEASURES.items()
}


@dataclass(frozen=True)
class Dial:
    """A method with the one setting that turns isotropy.

    Attributes:
        name: short name in tidy rows.
        short_label: name in tables and figures.
        method: name of the calibration.
        setting: the setting that is turned.
        upwards: what a higher value does.
        fixed: further settings, which all of the dial's runs share.
        starts_plain: whether dose 0 is plain fine-tuning, which the grid has once for all dials.
        steps: sizes of the setting, ascending. The dose is the place of a value's size, from 1, with the value's
            sign; without steps it is the setting itself.
        pair: names of two dials with the same doses whose difference this one is; it has no runs of its own.
    """

    name: str
    short_label: str
    method: str
    setting: str
    upwards: str
    fixed: Mapping[str, Any] = field(default_factory=dict)
    starts_plain: bool = True
    steps: tuple[float, ...] = ()
    pair: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return f"{self.short_label} ({self.setting})"

    def read_dose(self, calibration: Mapping[str, Any]) -> float | None:
        """Return the dose of a calibration's settings; None if they are none of this dial's."""
        method = format_method_name(dict(calibration))
        if method == PLAIN and self.starts_plain:
            return 0.0
        if method != self.method or any(calibration.get(name) != value for name, value in self.fixed.items()):
            return None
        value = float(calibration.get(self.setting) or 0)
        if not self.steps or value == 0:
            return value
        return math.copysign(1 + self.steps.index(abs(value)), value) if abs(value) in self.steps else None

    def read_value(self, dose: float) -> float:
        return math.copysign(self.steps[int(abs(dose)) - 1], dose) if self.steps and dose else dose

    def name_cell(self, dose: float) -> str:
        if self.starts_plain and dose == 0:
            return "plain fine-tuning"
        return f"{self.short_label} {self.setting}={self.read_value(dose):g}"


WHITENING = Dial(
    "whitening", "whitening", "whitening_zca", "epsilon", "a higher epsilon whitens less",
    {"shrinkage": 0.0, "keep_norm": None}, starts_plain=False, steps=(1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0),
)  # fmt: skip
DIALS = (
    Dial("isobn", "IsoBN", "isobn_paper", "beta", "a higher beta changes more"),
    Dial(
        "istar", "I-STAR", "istar", "strength", "a higher strength asks for more isotropy",
        steps=(0.01, 0.03, 0.1, 0.3, 1.0),
    ),
    Dial(
        "cosine", "cosine", "cosine", "strength", "a higher strength penalises more",
        {"target": "vocabulary"}, steps=(0.003, 0.01, 0.03, 0.1, 0.3, 1.0),
    ),
    WHITENING,
    replace(
        WHITENING, name="whitening_norm", short_label="whitening, norm kept",
        fixed={"shrinkage": 0.0, "keep_norm": True},
    ),
    replace(
        WHITENING, name="norm_effect", short_label="norm kept less not kept", method="",
        pair=("whitening_norm", "whitening"),
    ),
)  # fmt: skip
DIAL = {dial.name: dial for dial in DIALS}


class Series(NamedTuple):
    """Hold what a dial's runs gave on one encoder and task.

    Attributes:
        doses: the k doses that were planned, ascending.
        seeds: the S seeds whose runs finished at all k doses, ascending.
        values: score or measure -> its values, [S, k]; NaN where one is undefined.
        left_out: each other seed -> why, such as "dose 3 not yet run, dose 4 failed".
    """

    doses: list[float]
    seeds: list[int]
    values: dict[str, np.ndarray]
    left_out: dict[int, str]

    def select(self, seeds: Sequence[int], column: str, doses: Sequence[float] = ()) -> np.ndarray:
        """Return the values of some of its seeds, [len(seeds), k], and of some doses only if they are given."""
        values = self.values[column][[self.seeds.index(seed) for seed in seeds]]
        return values[:, [self.doses.index(dose) for dose in doses or self.doses]]


def build_rows(subjects: Sequence["Subject"]) -> list[TidyRow]:
    """Build a tidy row for each run and each dial that it is a dose of; the score is x 100.

    What a run does not have, or is undefined, is NaN. ``complete`` says whether its encoder and task are
    (``design.keep_grid_runs``).
    """
    rows = []
    for subject in subjects:
        record, calibration = subject.record, subject.cfg.calibration
        best = record.best if record is not None and record.status == FINISHED else None
        if best is not None and best.metrics(subject.cfg.task.dev_splits[0]).get(subject.cfg.task.primary) is None:
            best = None  # one number for all examples has no correlation: the registration leaves its seed out
        values = {"score": None if best is None else 100 * best.score}
        values |= {name: best and best.isotropy.get(name) for name in (*MEASURES, *VOCABULARY_MEASURES)}
        rows += [
            {
                **{"encoder": subject.encoder, "task": subject.task, "seed": subject.cfg.seed, "dial": dial.name},
                **{"dose": dose, "method": calibration["name"]},
                "state": "missing" if record is None else FINISHED if best is not None else "failed",
                **{name: math.nan if value is None else float(value) for name, value in values.items()},
                "complete": False,
            }
            for dial in DIALS
            if (dose := dial.read_dose(calibration)) is not None
        ]
    return rows


def collect_series(rows: Sequence[TidyRow], dial: Dial) -> Series:
    """Collect a dial's values; ``rows``: those of ``build_rows`` on one encoder and task."""
    own = select_rows(rows, {"dial": dial.name})
    cells = {(row["seed"], row["dose"]): row for row in own}
    doses, seeds = (sorted(list_distinct(own, name)) for name in ("dose", "seed"))
    left_out = {}
    for seed in seeds:
        states = {dose: cells[seed, dose]["state"] if (seed, dose) in cells else "missing" for dose in doses}
        if lacking := describe_lacking(states):
            left_out[seed] = lacking
    seeds = [seed for seed in seeds if seed not in left_out]
    values = {
        name: np.array([cells[seed, dose][name] for seed in seeds for dose in doses], float).reshape(-1, len(doses))
        for name in ("score", *MEASURES, *VOCABULARY_MEASURES)
        if doses
    }
    return Series(doses, seeds, values, left_out)


def describe_lacking(states: Mapping[float, str]) -> str:
    """Say which doses of one seed were not run and which failed; empty if all finished. ``states``: by dose."""
    if set(states.values()) == {"missing"}:
        return "not yet run"
    parts = []
    for state, word in {"missing": "not yet run", "failed": "failed"}.items():
        if doses := [f"{dose:g}" for dose, own in states.items() if own == state]:
            parts.append(f"dose{'s' * (len(doses) > 1)} {', '.join(doses)} {word}")
    return ", ".join(parts)


def collect_all_series(rows: Sequence[TidyRow]) -> dict[str, Series]:
    """Collect the series of the dials that have at least two doses, by their names; rows of one encoder and task.

    Where both dials of a pair were run, their difference stands in the place of the second, at the doses and seeds
    that both have.
    """
    series = {dial.name: collect_series(rows, dial) for dial in DIALS}
    series = {name: one for name, one in series.items() if len(one.doses) > 1}
    for dial in DIALS:
        if dial.pair and set(dial.pair) <= series.keys():
            ours, theirs = series[dial.pair[0]], series.pop(dial.pair[1])
            doses = [dose for dose in ours.doses if dose in theirs.doses]
            seeds = [seed for seed in ours.seeds if seed in theirs.seeds]
            values = {
                name: ours.select(seeds, name, doses) - theirs.select(seeds, name, doses) for name in ours.values
            }
            series[dial.name] = Series(doses, seeds, values, ours.left_out | theirs.left_out)
    return series


def is_primary(row: TidyRow) -> bool:
    """Say if it is a slope or correlation of a primary hypothesis, which Holm's correction is made over."""
    return row.get("kind") == GIVEN_DIAL or (row.get("quantity"), row.get("doses")) == ("score", WHOLE)


def group_studies(rows: Iterable[TidyRow]) -> list[tuple[TidyRow, list[TidyRow]]]:
    """Group rows by encoder and task: their names, and whether their study is complete; then the rows."""
    return [(dict(zip(STUDY, place, strict=True)), own) for place, own in group_rows(rows, *STUDY).items()]
