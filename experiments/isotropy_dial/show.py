"""Show the study ``isotropy_dial``: tables of slopes and correlations, figures, and what to know of them."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path

import numpy as np
import yaml
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table

from isobench.analyses.rows import TidyRow, group_rows, list_distinct, select_rows
from isobench.analyses.shown import Rows, Shown, format_number, make_table
from isobench.common.plots import LINE_STYLES, PALETTE, escape_math, make_panel_grid, make_panels
from isobench.papers.folders import find_config
from isobench.statistics.dose_response import student_t
from isobench.statistics.seeds import ALPHA
from isobench_papers.isotropy_dial import design
from isobench_papers.isotropy_dial.front import RULE, choose_changes, draw_front
from isobench_papers.isotropy_dial.rows import (
    ACROSS,
    DIAL,
    DIALS,
    GIVEN_DIAL,
    GIVEN_DOSE,
    MEASURES,
    MORE_ISOTROPIC,
    TURNED,
    VOCABULARY_MEASURES,
    WHOLE,
    Series,
    collect_all_series,
    is_primary,
)
from isobench_papers.isotropy_dial.second import MARGIN

FOLDER = Path(__file__).parent
INCOMPLETE = " †"  # ends the rows of a study that is not complete
Columns = Mapping[str, Callable[[TidyRow], str]]  # heading -> function that writes a row's cell
Collected = Mapping[tuple[str, str], Mapping[str, Series]]  # encoder and task -> the series of their dials


def show(rows: Rows) -> Shown:
    """Show slopes and correlations, the score against dose and isotropy, and the study's progress and power."""
    labels = {(row["encoder"], row["task"]): design.label_progress(row) for row in rows["progress"]}
    studies = {names: ", ".join(names) + f" ({label})" * bool(label) for names, label in labels.items()}
    rows = {
        name: [row | {"study": studies[row["encoder"], row["task"]]} if "encoder" in row else row for row in own]
        for name, own in rows.items()
    }
    doses, slopes, correlations = rows["doses"], rows["slopes"], rows["correlations"]
    contrasts, verdicts = rows.get("contrasts", []), rows.get("verdicts", [])
    by_study = group_rows(doses, "encoder", "task")
    changes = {
        names: own
        for names, of_study in by_study.items()
        if of_study[0]["complete"] and (own := choose_changes(of_study, contrasts))
    }
    scores = {name_score(task) for _, task in changes}
    front = {"front": draw_front(changes, scores.pop() if len(scores) == 1 else "score")} if changes else {}
    tables = [
        *build_slope_tables(slopes, rows.get("slopes_new_examples", [])),
        build_correlation_table(correlations),
        build_left_out_table(rows.get("left_out_cells", [])),
        *build_contrast_tables(contrasts, verdicts),
    ]
    found = {names: collect_all_series(own) for names, own in by_study.items()}
    figures = {"isotropy": draw_isotropy(found, correlations, labels), "dose": draw_doses(found, studies)}
    registrations = {"code": "preregistration.md", "code_second": "second_registration.md"}
    notes = [
        *design.describe_progress(rows["progress"]),
        *describe_outcome(slopes, correlations, verdicts),
        *(
            note
            for name, file in registrations.items()
            if name in rows
            for note in design.describe_preregistration(rows[name], FOLDER / file)
        ),
        *design.describe_power(FOLDER / "power.json", rows["design"]),
        *list_notes(doses, slopes),
    ]
    return Shown([table for table in tables if table.row_count], front | figures, notes)


def describe_outcome(
    slopes: Sequence[TidyRow], correlations: Sequence[TidyRow], verdicts: Sequence[TidyRow]
) -> list[str]:
    """Say which primary slopes and correlations of complete studies differ from 0, and what is judged of statements.

    Nothing without a complete study.
    """
    lines, ranks = ([row for row in rows if row["complete"] and is_primary(row)] for rows in (slopes, correlations))
    if not lines:
        return []
    follows, found = ([row for row in rows if row["p_holm"] < ALPHA] for rows in (lines, ranks))
    upwards = sum(row["correlation"] * MORE_ISOTROPIC[row["measure"]] > 0 for row in found)
    without = [label for name, label in MEASURES.items() if name not in {row["measure"] for row in found}]
    unturned = [row for row in lines if describe_check(row, slopes) == "no, no"]
    judged = [
        f'"{verdict}" for ' + ", ".join(f"{row['statement']} ({row['encoder']})" for row in own)
        for (verdict,), own in group_rows(verdicts, "verdict").items()
    ]
    sentences = [
        f"The score follows the dose in {len(follows)} of {len(lines)} tests, after Holm's correction. The slopes of "
        f"straight lines, in points over the whole dial: {list_by_study(follows)}."
    ]
    if ranks:
        sentences.append(
            f"Given the dial, the score is correlated with isotropy in {len(found)} of {len(ranks)} tests, after "
            f"Holm's correction: {list_by_study(found)}. The more isotropic runs score higher in {upwards} of these "
            f"{len(found)}. None of them is of {', '.join(without)}."
        )
    if judged:
        sentences.append(f"The verdicts of the second registration are {'; '.join(judged)}.")
    return [
        *sentences,
        "Changes that say nothing about isotropy, because neither EV1 nor IsoScore follows the dose (the registered "
        f"check): {list_by_study(unturned)}.",
    ]


def list_by_study(rows: Iterable[TidyRow]) -> str:
    """List slopes, with what a higher dose does, or correlations."""
    texts = []
    for names, own in group_rows(rows, "encoder", "task").items():
        found = [
            f"{MEASURES[row['measure']]} {row['correlation']:+.2f}"
            if "measure" in row
            else f"{DIAL[row['dial']].short_label} {row['over_dial']:+.2f} ({DIAL[row['dial']].upwards})"
            for row in own
        ]
        texts.append(f"{', '.join(names)}: {', '.join(found)}")
    return "; ".join(texts) or "none"


def describe_check(row: TidyRow, slopes: Iterable[TidyRow]) -> str:
    """Say whether EV1 and whether IsoScore change with the dose of a row's dial (the registered check)."""
    names = {name: row[name] for name in ("encoder", "task", "dial")}
    own = {other["quantity"]: other["p"] for other in select_rows(slopes, {**names, "doses": WHOLE})}
    return ", ".join("yes" if own[name] < ALPHA else "no" for name in TURNED)


def build_table(title: str, rows: Iterable[TidyRow], columns: Columns, texts: int = 1) -> Table:
    """Build a table with the rows below the names of their encoder and task; its first columns are ``texts``."""
    table = make_table(title, list(columns)[:texts], list(columns)[texts:], wrap_numbers=True)
    for (study,), group in group_rows(rows, "study").items():
        table.add_row(study, style="bold")
        for row in group:
            table.add_row(*(write(row) for write in columns.values()))
        table.add_section()
    return table


def format_p(value: float | None) -> str:
    """Write a p-value; a dash where there is none."""
    return "< 0.0001" if value is not None and value < 0.0001 else format_number(value, ".4f")


def build_slope_tables(slopes: Sequence[TidyRow], of_examples: Sequence[TidyRow]) -> list[Table]:
    """Build the tables of slopes of the score, and the registered check: slopes of isotropy."""
    names = MEASURES | VOCABULARY_MEASURES
    dial: Columns = {"dial": lambda row: mark(DIAL[row["dial"]].label + f", {row['doses']}" * is_half(row), row)}
    line: Columns = {
        "straight line, over the dial": lambda row: format_estimate(
            row["over_dial"], row["over_low"], row["over_high"], "+.2f" if row["quantity"] == "score" else "+.3g"
        ),
        "p": lambda row: format_p(row["p"]),
    }
    seeds: Columns = {"seeds": lambda row: str(row["seeds"])}
    primary: Columns = {
        name_holm(slopes): lambda row: format_p(row["p_holm"]),
        "EV1, IsoScore follow the dose": lambda row: describe_check(row, slopes),
    }
    measure: Columns = {"measure": lambda row: names[row["quantity"]]}
    examples: Columns = {"examples": lambda row: str(row["examples"])}
    of_isotropy = [row for row in slopes if row["quantity"] != "score"]
    slope, secondary = "Slope of the score in the dose, in points", "Secondary, not corrected: slope of the score"
    check = "Registered check, not corrected: change of isotropy"
    return [
        build_table(slope, filter(is_primary, slopes), {**dial, **line, **primary, **seeds}),
        build_table(f"{secondary}, half of the doses", filter(is_half, slopes), {**dial, **line, **seeds}),
        build_table(
            f"{secondary}, for new seeds and new dev examples", of_examples, {**dial, **line, **seeds, **examples}
        ),
        build_table(check, of_isotropy, {**dial, **measure, **line, **seeds}, texts=2),
    ]


def is_half(row: TidyRow) -> bool:
    return bool(row["doses"] != WHOLE)


def build_correlation_table(correlations: Sequence[TidyRow]) -> Table:
    """Build the table of Spearman's correlations of score and isotropy: a row for each measure."""
    dials = [dial for dial in list_distinct(correlations, "dial") if dial]
    headings = (*dials, "across", "given dial", "p", name_holm(correlations), "given dial, dose", "p", "seeds")
    title = f"Spearman's correlation of score and isotropy (* p < {ALPHA}, not corrected)"
    table = make_table(title, ("measure",), headings, wrap_numbers=True)
    for (study,), group in group_rows(correlations, "study").items():
        table.add_row(study, style="bold")
        seeds = max(row["seeds"] for row in group)
        for (measure,), own in group_rows(group, "measure").items():
            found = {row["dial"] or row["kind"]: row for row in own}
            cells = []
            for row in (found[name] for name in (*dials, ACROSS) if name in found):
                few = f" ({row['seeds']} of {seeds} seeds)" if row["seeds"] < seeds else ""
                cells.append(format_number(row["correlation"], "+.2f") + "*" * (row["p"] < ALPHA) + few)
            if ACROSS in found:
                given, dose = found[GIVEN_DIAL], found[GIVEN_DOSE]
                cells += [write_correlation(given), format_p(given["p"]), format_p(given["p_holm"])]
                cells += [write_correlation(dose), format_p(dose["p"]), str(given["seeds"])]
            table.add_row(mark(MEASURES[measure], own[0]), *cells)
        table.add_section()
    return table


def build_left_out_table(rows: Iterable[TidyRow]) -> Table:
    """Build the table of what single cells of the grid decide: a row for each primary slope and correlation."""
    estimated = [{**row, "estimate": row["correlation"] if row["measure"] else row["over_dial"]} for row in rows]
    defined = [row for row in estimated if not math.isnan(row["estimate"])]
    tests = []
    for (study, measure, dial), (whole, *others) in group_rows(defined, "study", "measure", "dial").items():
        estimates = [row["estimate"] for row in others]
        names = [MEASURES[name] for name in (measure,) if name] + [DIAL[name].label for name in (dial,) if name]
        far = max(others, key=lambda row: abs(row["estimate"] - whole["estimate"]))
        other = [row for row in others if (row["p_holm"] < ALPHA) != (whole["p_holm"] < ALPHA)]
        tests.append({
            "study": study,
            "slope or correlation": ", ".join(names),
            "all cells": f"{whole['estimate']:+.2f}",
            "p after Holm": format_p(whole["p_holm"]),
            "without one": f"{min(estimates):+.2f} to {max(estimates):+.2f}",
            "changed most without": far["left_out"],
            "other verdict without": "; ".join(f"{row['left_out']}: p {row['p_holm']:.4f}" for row in other) or "-",
        })  # fmt: skip
    title = f"Primary slopes and correlations without one cell of the grid (verdict: p < {ALPHA} after Holm)"
    return build_table(title, tests, {name: itemgetter(name) for test in tests[:1] for name in list(test)[1:]})


def build_contrast_tables(contrasts: Sequence[TidyRow], verdicts: Sequence[TidyRow]) -> list[Table]:
    """Build the tables of the second registration: its verdicts, and each dose less plain fine-tuning."""
    judged: Columns = {name: itemgetter(name) for name in ("statement", "verdict", "because")}
    columns: Columns = {
        "dose": lambda row: mark(DIAL[row["dial"]].name_cell(row["dose"]), row),
        "change": lambda row: format_estimate(row["difference"], row["low"], row["high"], "+.2f"),
        "p": lambda row: format_p(row["p"]),
        name_holm(contrasts): lambda row: format_p(row["p_holm"]),
        f"within {MARGIN:g} point, p after Holm": lambda row: format_p(row["p_margin_holm"]),
        "seeds": lambda row: str(row["seeds"]),
    }
    title = "Each dose less plain fine-tuning or less its partner, by seed (planned in the second registration alone)"
    return [
        build_table("Statements of the second registration", verdicts, judged, texts=3),
        build_table(title, contrasts, columns),
    ]


def write_correlation(row: TidyRow) -> str:
    return format_estimate(row["correlation"], row["low"], row["high"], "+.2f")


def format_estimate(value: float, low: float, high: float, form: str) -> str:
    text = format_number(value, form)
    return text if format_number(low, form) == "-" else f"{text} [{low:{form}}, {high:{form}}]"


def mark(text: str, row: TidyRow) -> str:
    """Mark the first cell of a row whose study is not complete."""
    return text if row["complete"] else text + INCOMPLETE


def name_holm(rows: Sequence[TidyRow]) -> str:
    """Name the column of corrected p-values: they are provisional as long as no study is complete."""
    return "p after Holm" if any(row["complete"] for row in rows) else "p after Holm, provisional"


def draw_isotropy(found: Collected, correlations: Sequence[TidyRow], labels: Mapping[tuple[str, str], str]) -> Figure:
    """Draw the score against each isotropy measure: a row of panels an encoder and task, a colour a dial.

    A point is the mean over the seeds that have all doses of the dial, with its standard error. A line joins the
    doses of a dial in their order. Plain fine-tuning is black. A panel's title is the correlation given the dial: the
    points of different dials lie apart for reasons of their own, which the eye can't take away. An encoder and task
    without any such seed has no panels, and the title names it; if none has one, all get empty panels.
    """
    begun = [names for names, own in found.items() if any(series.seeds for series in own.values())]
    drawn = begun or list(found)
    figure, axes = make_panels(len(drawn), len(MEASURES), 1.9 if len(drawn) > 2 else 2.6, sharey="row")
    for (encoder, task), line in zip(drawn, axes, strict=True):
        own = select_rows(correlations, {"encoder": encoder, "task": task, "kind": GIVEN_DIAL})
        words = (encoder, f"{task}: {name_score(task)}", *labels[encoder, task].split(": "))
        line[0].set_ylabel(escape_math("\n".join(words)), fontsize=7)
        for axis, (measure, label) in zip(line, MEASURES.items(), strict=True):
            direction = "more isotropic →" if MORE_ISOTROPIC[measure] > 0 else "← more isotropic"
            axis.set_xlabel(f"{label}\n{direction}", fontsize=7)
            titles = [write_correlation(row) for row in select_rows(own, {"measure": measure})]
            axis.set_title("".join(titles), fontsize=6)
            axis.locator_params("x", nbins=3)
            for name, series in found[encoder, task].items():
                if not DIAL[name].pair and series.seeds:
                    draw_path(axis, series, measure, name)
            axis.margins(0.1)
    add_legend(figure, axes.flat, len(MEASURES))
    title = [
        "Score against the isotropy of the embeddings: means over seeds, bars of one standard error to each side",
        "Above each panel: Spearman's correlation of the two, given the dial, with its 95% interval",
    ]
    title += [f"No seed with all doses yet: {', '.join(names)}" for names in found if names not in drawn]
    figure.suptitle(escape_math("\n".join(title)), fontsize=8)
    return figure


def name_score(task: str) -> str:
    """Name the score of a task and its unit; tasks that differ in settings have these after their name."""
    file = find_config("task", task.split(" ")[0])
    metric = yaml.safe_load(file.read_text(encoding="utf-8"))["primary"] if file else "score"
    names = {"accuracy": "accuracy (%)", "pearson": "Pearson's r (x 100)"}
    return names.get(metric, f"{metric} (x 100)")


def draw_path(axis: Axes, series: Series, measure: str, name: str) -> None:
    """Draw a dial's mean scores against a measure, joined in the order of the doses, and mark plain fine-tuning."""
    dial, colour = DIAL[name], PALETTE[list(DIAL).index(name)]
    x, scores = series.values[measure].mean(0), series.values["score"]
    y, error = scores.mean(0), scores.std(0, ddof=1) / np.sqrt(len(scores)) if len(scores) > 1 else None
    axis.errorbar(x, y, error, color=colour, marker="o", markersize=2.5, linewidth=0.8, label=dial.label)
    if dial.starts_plain and 0 in series.doses:
        place = [series.doses.index(0)]
        axis.plot(x[place], y[place], "D", color="black", mfc="none", zorder=5, label="plain fine-tuning")


def draw_doses(found: Collected, studies: Mapping[tuple[str, str], str]) -> Figure:
    """Draw the score less the seed's mean against the dose: a panel a dial, a line an encoder and task.

    Each seed's mean over the doses is taken away, because a level that all doses of a seed share says nothing about
    the slope. The 95% intervals are of these differences. They are scaled by sqrt(k / (k - 1)) of k doses, because
    taking the mean away makes them smaller (Cousineau 2005, Morey 2008).
    """
    dials = [dial for dial in DIALS if any(dial.name in own for own in found.values())] or DIALS
    figure, axes = make_panel_grid([dial.label for dial in dials], 2.2, 2)
    for dial, axis in zip(dials, axes, strict=False):
        for number, (names, own) in enumerate(found.items()):
            series = own.get(dial.name)
            if series is None or not series.seeds:
                continue
            colour, style = PALETTE[number % len(PALETTE)], LINE_STYLES[number // len(PALETTE) % len(LINE_STYLES)]
            rest = series.values["score"] - series.values["score"].mean(1, keepdims=True)
            k = len(series.doses)
            mean, low, _, _ = student_t(rest.T * np.sqrt(k / (k - 1)))
            margins = None if len(rest) < 2 else np.nan_to_num(mean - low)
            axis.errorbar(
                series.doses, rest.mean(0), margins, color=colour, ls=style, marker="o", markersize=3,
                label=studies[names],
            )  # fmt: skip
        axis.set(xlabel="dose", ylabel="score less the seed's mean")
    add_legend(figure, axes, 3)
    figure.suptitle("Score against the dose, with 95% intervals over seeds", fontsize=8)
    return figure


def add_legend(figure: Figure, axes: Iterable[Axes], columns: int) -> None:
    """Add a legend of all panels' labels, each once, in at most so many columns."""
    handles = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            handles[label] = handle
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=min(len(handles), columns) or 1)


def list_notes(rows: Sequence[TidyRow], slopes: Sequence[TidyRow]) -> list[str]:
    """Write how the numbers are made, and which seeds are left out."""
    has_result = any(row["complete"] for row in rows)
    return [
        "Every statistic is computed for each seed by itself; intervals and p are Student's t over the seeds. They "
        "are for new seeds with these doses, methods, encoders and examples, not for others; one secondary table has "
        "intervals for new dev examples too, where runs have predictions and the score is the accuracy.",
        "Holm's correction is over complete studies only."
        if has_result
        else "PROVISIONAL: no study is complete. Until one is, Holm's correction is over all of them.",
        "Doses: "
        + ", ".join(f"{DIAL[name].label}: {DIAL[name].upwards}" for name in list_distinct(slopes, "dial"))
        + ".",
        *([RULE] if has_result else []),
        *list_left_out(rows),
    ]


def list_left_out(rows: Sequence[TidyRow]) -> list[str]:
    """List the seeds that each dial leaves out, of the seeds of which some run has ended, and why."""
    notes = []
    for names, own in group_rows(rows, "encoder", "task").items():
        begun = {row["seed"] for row in own if row["state"] != "missing"}
        for name, series in collect_all_series(own).items():
            if reasons := [f"seed {seed} ({why})" for seed, why in series.left_out.items() if seed in begun]:
                notes.append(f"Left out of {DIAL[name].label} on {', '.join(names)}: {'; '.join(reasons)}.")
    return notes
