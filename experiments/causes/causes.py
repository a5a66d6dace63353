"""The bench of causes: what one change of a small language model does to the isotropy of its vocabulary and states.

Predictions and tests were written down before the first run: experiments/causes/registration.md.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

from isobench.analyses.rows import TidyRow, group_rows, select_rows
from isobench.analyses.shown import Rows, Shown, describe_registration, format_estimate, format_number, make_table
from isobench.common.errors import UserError
from isobench.common.plots import PALETTE, make_panels
from isobench.common.terminal import name_some
from isobench.statistics.dose_response import average_over_seeds
from isobench.statistics.seeds import ALPHA, holm

if TYPE_CHECKING:  # importing it takes seconds
    from isobench.analyses.subject import Subject
    from isobench.config.schema import Config
    from isobench.runs.record import Epoch

REGISTRATION = Path(__file__).parent / "registration.md"
BASE = "base"
MEASURES = {  # by their names in a record; those of the output embedding are the vocabulary's
    "head/average_cosine": "vocabulary's average cosine",
    "embedding/average_cosine": "states' average cosine",
    "head/mean_ratio": "vocabulary's mean ratio",
    "head/i1": "vocabulary's I1",
    "head/i2": "vocabulary's I2",
    "head/isoscore": "vocabulary's IsoScore",
    "embedding/isoscore": "states' IsoScore",
    "layer_0/average_cosine": "average cosine before the first layer",
    "layer_1/average_cosine": "average cosine after the first layer",
    "vocabulary/average_cosine": "input embedding's average cosine",
    "loss": "loss, nats",
}
PRIMARY = ("head/average_cosine", "embedding/average_cosine")
PREDICTED = {  # the sign of the change that a paper predicts, by cause and measure; registration.md names the papers
    ("coupled Adam", "head/average_cosine"): -1,
    ("SGD", "head/average_cosine"): -1,
    ("fewer frequent tokens", "head/average_cosine"): -1,
}
CAUSES = {  # of the registration: the setting that is turned, and its value; True: any but none
    "coupled Adam": ("optimization.optimizer.name", "coupled_adam"),
    "Muon": ("optimization.optimizer.name", "muon"),
    "SGD": ("optimization.optimizer.name", "sgd"),
    "Adafactor": ("optimization.optimizer.name", "adafactor"),
    "untied": ("encoder.scratch.tie_word_embeddings", False),
    "norms after": ("encoder.scratch.do_layer_norm_before", False),
    "attention averages": ("encoder.attention", "average"),
    "attention off by one": ("encoder.attention", "off_by_one"),
    "untrained blocks": ("encoder.frozen_blocks", True),
    "fewer frequent tokens": ("task.language.subsample", True),
    "NormFormer's norms": ("encoder.normformer", True),
}
OTHER_TEXT = "fewer frequent tokens"  # whose loss is of another text than the base's


def name_cause(cfg: "Config") -> str:
    """Name the one thing in which a run differs from the base."""
    found = []
    for cause, (setting, turned) in CAUSES.items():
        value: Any = cfg
        for name in setting.split("."):
            value = value.get(name) if isinstance(value, dict) else getattr(value, name, None)
        if bool(value) if turned is True else value == turned:
            found.append(cause)
    if len(found) > 1:
        raise UserError(f"causes turns one cause at a time, and a run has {' and '.join(found)}")
    return found[0] if found else BASE


def compute(subjects: list["Subject"]) -> Rows:
    """List every run, choose each cause's learning rate, and compare its measures with the base's, seed by seed.

    Raises:
        UserError: a run turns two causes, or no seed has all runs of the base.
    """
    runs = [read_run(subject) for subject in subjects]
    chosen = choose_rates(runs)
    if BASE not in {row["cause"] for row in chosen}:
        raise UserError("causes compares with the base, and no seed has all its runs: run the whole experiment")
    return {"models": runs, "rates": chosen, "effects": compare(runs, chosen)}


def read_best(subject: "Subject") -> tuple[str, "Epoch | None"]:
    """Read a run's state, and the epoch that is reported; None if it has not finished."""
    record = subject.record
    if record is None:
        return "missing", None
    return record.status, record.best if record.status == "finished" else None


def read_run(subject: "Subject") -> TidyRow:
    """Read a run's cause, learning rate, state, loss and isotropy; NaN for what it has not."""
    cfg, (state, best) = subject.cfg, read_best(subject)
    values: dict[str, Any] = dict(best.isotropy) if best is not None else {}
    if best is not None:
        values["loss"] = best.metrics(cfg.task.dev_splits[0])["loss"]
        values.setdefault("vocabulary/average_cosine", values.get("head/average_cosine"))  # tied: one matrix
    measures = {name: math.nan if values.get(name) is None else float(values[name]) for name in MEASURES}
    return {"cause": name_cause(cfg), "lr": cfg.optimization.lr, "seed": cfg.seed, "state": state} | measures


def choose_rates(runs: Sequence[TidyRow]) -> list[TidyRow]:
    """Choose the learning rate with the smallest mean loss for each cause; ``edge``: it is an end of those tried.

    The mean is over the seeds whose runs have all ended. A rate at which one of them failed is not taken.
    """
    chosen = []
    for (cause,), own in group_rows(runs, "cause").items():
        begun = {row["seed"] for row in own if row["state"] == "missing"}
        ended = group_rows([row for row in own if row["seed"] not in begun], "lr")
        losses = {lr: float(np.mean([row["loss"] for row in rows])) for (lr,), rows in ended.items()}
        if known := {lr: loss for lr, loss in sorted(losses.items()) if not math.isnan(loss)}:
            best = min(known, key=known.__getitem__)
            rates, seeds = ({row[name] for row in own} for name in ("lr", "seed"))
            edge, seeds = best in (min(rates), max(rates)) and len(rates) > 1, sorted(seeds - begun)
            chosen.append({"cause": cause, "lr": best, "loss": known[best], "edge": edge, "seeds": seeds})
    return chosen


def compare(runs: Sequence[TidyRow], chosen: Sequence[TidyRow]) -> list[TidyRow]:
    """Compare each cause with the base, both at their own learning rates: paired by seed, t-test, Holm.

    A cause without a result, or without a p, counts in Holm's correction with p = 1.
    """
    own = {rate["cause"]: index_by_seed(runs, rate) for rate in chosen}
    effects: list[TidyRow] = []
    for measure in MEASURES:
        rows = [
            {"cause": cause, "measure": measure} | compare_by_seed(own.get(cause, {}), own[BASE], measure)
            for cause in CAUSES
        ]
        add_holm(rows, len(CAUSES))
        effects += [row | {"verdict": judge(row, PREDICTED.get((row["cause"], measure)))} for row in rows]
    return effects


def compare_by_seed(ours: Mapping[int, TidyRow], theirs: Mapping[int, TidyRow], measure: str) -> TidyRow:
    """Average the differences of a measure over the seeds that both have, ours less theirs."""
    differences = [ours[seed][measure] - theirs[seed][measure] for seed in sorted(ours.keys() & theirs.keys())]
    return average_over_seeds(np.array(differences))._asdict()


def index_by_seed(runs: Sequence[TidyRow], rate: TidyRow) -> dict[int, TidyRow]:
    """Return the runs of a chosen learning rate by seed, without the seeds that do not count."""
    chosen = {name: rate[name] for name in ("task", "cause", "lr") if name in rate}
    return {row["seed"]: row for row in select_rows(runs, chosen) if row["seed"] in rate["seeds"]}


def add_holm(rows: Sequence[TidyRow], tests: int) -> None:
    """Correct the p of rows for so many ``tests``; one without a row, or without a p, counts with p = 1."""
    ps = [1.0 if math.isnan(row["p"]) else row["p"] for row in rows]
    for row, corrected in zip(rows, holm(ps + [1.0] * (tests - len(rows))), strict=False):
        row["p_holm"] = corrected


def judge(row: Mapping[str, Any], sign: int | None) -> str:
    """Judge whether a change has the ``sign`` that was predicted; empty where none was."""
    if sign is None:
        return ""
    if not row["p_holm"] < ALPHA:
        return "can't tell"
    return "supported" if row["value"] * sign > 0 else "refuted"


def show(rows: Rows) -> Shown:
    """Show the effects on both primary measures as a picture and a table, all measures in another, and the rates."""
    effects = rows["effects"]
    verdicts = make_table("Registered predictions", ("statement", "verdict"), ("change [95%]", "p, Holm's"))
    for row in effects:
        if row["verdict"]:
            lowers = "lowers" if PREDICTED[row["cause"], row["measure"]] < 0 else "raises"
            statement = f"{row['cause']} {lowers} the {MEASURES[row['measure']]}"
            numbers = format_estimate(row, "+.3f"), format_number(row["p_holm"], ".2g")
            verdicts.add_row(statement, row["verdict"], *numbers)
    levels = make_table("Levels", ("cause", "learning rate"), list(MEASURES.values()), True)
    for rate in rows["rates"]:
        own = list(index_by_seed(rows["models"], rate).values())
        means = [format_number(float(np.mean([row[name] for row in own])), ".4f") for name in MEASURES]
        levels.add_row(rate["cause"], f"{rate['lr']:g}{' (edge)' * rate['edge']}", *means)
    notes = [
        "Changes are paired by seed; intervals of 95% and p are Student's t over seeds. * marks p below .05 after "
        "Holm's correction over the causes, for each measure by itself. Intervals are not corrected.",
        "Each cause has the learning rate with the smallest mean loss. (edge): it is an end of those tried.",
        *describe_lacking(rows["models"]),
        describe_registration(REGISTRATION),
    ]
    secondary = [name for name in MEASURES if name not in PRIMARY]
    tables = [
        build_changes("Change from the base", effects, PRIMARY, lambda row: format_estimate(row, "+.3f")),
        verdicts,
        build_matched(rows["models"], rows["rates"]),
        build_changes(
            "Change from the base, secondary measures", effects, secondary,
            lambda row: format_number(row["value"], "+.3f"),
        ),
        levels,
    ]  # fmt: skip
    return Shown(tables, {"causes": draw_effects(effects)} if effects else {}, notes)


def build_changes(
    title: str, effects: Sequence[TidyRow], measures: Sequence[str], write: Callable[[TidyRow], str]
) -> Table:
    """Build a table of changes, a row a cause and a column a measure."""
    table = make_table(title, ("cause",), [MEASURES[name] for name in measures], True)
    for (cause,), own in group_rows(effects, "cause").items():
        cells = {row["measure"]: write(row) + "*" * (row["p_holm"] < ALPHA) for row in own}
        table.add_row(cause, *(cells[name] for name in measures))
    return table


def build_matched(runs: Sequence[TidyRow], chosen: Sequence[TidyRow]) -> Table:
    """Build a table: each cause's cosine, the base's at the nearest loss, and the change at the base's own rate."""
    seeds = {rate["cause"]: rate["seeds"] for rate in chosen}
    runs = [row for row in runs if row["seed"] in seeds.get(row["cause"], ())]
    levels: dict[str, dict[float, tuple[float, float]]] = {}  # cause -> learning rate -> loss and cosine, means
    for (cause, lr), own in group_rows(runs, "cause", "lr").items():
        levels.setdefault(cause, {})[lr] = tuple(np.mean([[row["loss"], row[PRIMARY[0]]] for row in own], axis=0))
    rates = {rate["cause"]: rate["lr"] for rate in chosen}
    title = f"Not registered: {MEASURES[PRIMARY[0]]} at nearly the same loss, and at the base's learning rate"
    names = ("learning rate", "loss", "cosine", "base's rate", "base's loss", "base's cosine", "change at its rate")
    table = make_table(title, ("cause",), names, True)
    for cause in [cause for cause in CAUSES if cause in rates and cause != OTHER_TEXT]:
        loss, cosine = levels[cause][rates[cause]]
        known = [lr for lr, level in levels[BASE].items() if not math.isnan(level[0])]
        nearest = min(known, key=lambda lr: abs(levels[BASE][lr][0] - loss))
        base_loss, base_cosine = levels[BASE][nearest]
        same = levels[cause].get(rates[BASE], (math.nan, math.nan))[1] - levels[BASE][rates[BASE]][1]
        table.add_row(
            cause, f"{rates[cause]:g}", f"{loss:.2f}", f"{cosine:.3f}", f"{nearest:g}", f"{base_loss:.2f}",
            f"{base_cosine:.3f}", format_number(same, "+.3f"),
        )  # fmt: skip
    return table


def describe_lacking(runs: Sequence[TidyRow]) -> list[str]:
    """Name the runs that have no result in a note, in a list; empty if all have one."""
    named = [
        f"{row.get('task', '')} {row['cause']} lr {row['lr']:g} seed {row['seed']} ({row['state']})".strip()
        for row in runs
        if math.isnan(row["loss"])
    ]
    return [f"INCOMPLETE: {len(named)} of {len(runs)} runs have no result: {name_some(named)}."] if named else []


def draw_effects(effects: Sequence[TidyRow]) -> Figure:
    """Draw each cause's change of both primary measures with its interval, sorted by that of the vocabulary."""
    by_measure = {measure: select_rows(effects, {"measure": measure}) for measure in PRIMARY}
    causes = [row["cause"] for row in sorted(by_measure[PRIMARY[0]], key=lambda row: -row["value"])]
    figure, axes = make_panels(1, 2, 0.5 + 0.22 * len(causes), sharey=True)
    for axis, (measure, rows) in zip(axes[0], by_measure.items(), strict=True):
        for row in sorted(rows, key=lambda row: causes.index(row["cause"])):
            place, color = causes.index(row["cause"]), PALETTE[5] if row["p_holm"] < ALPHA else "0.5"
            axis.plot([row["low"], row["high"]], [place, place], color=color)
            axis.plot(row["value"], place, "o", color=color, markersize=4)
        axis.axvline(0, color="black", linewidth=0.8)
        axis.set_title(MEASURES[measure].partition("'")[0])
        axis.set_xlabel("change of the average cosine (95% interval)\norange: p < .05 after Holm")
        axis.locator_params(axis="x", nbins=5)
    axes[0, 0].set_yticks(range(len(causes)), causes)
    return figure


def describe_differences(subjects: list["Subject"], rows: Rows) -> list[str]:
    """Describe model and data: there is no paper whose numbers these are."""
    cfg = subjects[0].cfg
    files = ", ".join(Path(file).stem for file in (cfg.data.files or {}).values() if isinstance(file, str))
    return [
        f"a language model of {(cfg.encoder.scratch or {}).get('num_hidden_layers')} layers, {files or cfg.task.name}"
    ]
