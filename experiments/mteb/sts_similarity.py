"""Sentence similarity by frozen encoders: what calibrations do to it, beside MTEB's published numbers."""

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from rich.table import Table

from isobench.analyses.rows import TidyRow, group_rows, list_distinct, select_rows
from isobench.analyses.shown import Rows, Shown, find_paper_column, format_number, make_table
from isobench.common.errors import UserError
from isobench.common.files import sha256_json
from isobench.common.plots import PALETTE, make_panel_grid
from isobench.common.terminal import format_count
from isobench.config.bounds import NOT_EMPTY, one_of
from isobench.data.weights import format_encoder_name
from isobench.papers import published
from isobench.runs.identity import drop_targets_of_chain
from isobench_papers.mteb.sts_sets import SETS, load_sentence_pairs
from isobench_papers.probe.probe import group_by_encoder

if TYPE_CHECKING:  # importing them takes seconds
    from torch import Tensor

    from isobench.analyses.subject import Subject
    from isobench.frozen.encode import SentenceVectors

PAPER = "mteb"
PLAIN = "none"  # the method of vectors without calibration
# Of the similarities, by their names in `similarities.SIMILARITIES`.
HEADINGS = {"cosine": "cosine", "inner": "inner", "spearman": "ranks", "l1": "-L1", "l2": "-L2"}
USUAL = ["cosine", "inner", "spearman", "l1"]
SetName = Annotated[str, one_of(*SETS)]
Similarity = Annotated[str, one_of(*HEADINGS)]
Aggregate = Annotated[str, one_of("all", "wmean")]
CORRELATIONS = ("spearman", "pearson")
VERSION = 4  # of the cached correlations, part of their name: raise it when they are computed otherwise
MARKERS = ("o", "s", "^", "D", "v", "P", "X")  # of the layers
TICKS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)  # of the logarithmic axis
SAME = 0.05  # points; rounding orders pairs of equal cosine at random, so that equal methods differ this little


def compute(
    subjects: list["Subject"],
    sets: Annotated[list[SetName], NOT_EMPTY],
    fit: SetName | None,
    unit_length: bool,
    similarities: Annotated[list[Similarity], NOT_EMPTY] = USUAL,
    aggregate: Aggregate = "all",
) -> Rows:
    """Correlate human scores of sentence pairs with similarities of their vectors, by encoder, layer, method and set.

    Args:
        subjects: encoders x layers x calibrations.
        sets: names of the sets.
        fit: the set on whose sentences calibrations are fitted; None for each set's own.
        unit_length: divide each vector by its length before it is calibrated.
        similarities: of two vectors.
        aggregate: ``all`` correlates all pairs of a set. ``wmean`` is SimCSE's: the mean of the correlations within
            the set's sub-sets, weighted by their pairs; a set without sub-sets is one.

    Raises:
        UserError: sentence pairs are missing, an encoder's pooling does not fit, or a method can't be applied.
    """
    from isobench.common.progress import track_progress
    from isobench.frozen.encode import FrozenEncoder

    check_subjects(subjects)
    names = list(dict.fromkeys([*sets, *([fit] if fit else [])]))
    pairs = load_sentence_pairs(subjects[0].cfg.data, names)
    rows: list[TidyRow] = []
    encoders: list[TidyRow] = []
    for group in group_by_encoder(subjects):
        encoder = FrozenEncoder(group[0].cfg, list(dict.fromkeys(subject.cfg.encoder.layer for subject in group)))
        vectors = {name: encoder.encode(name, [*pairs[name].first, *pairs[name].second]) for name in names}
        del encoder  # its weights are not needed any more
        cut = sum(max(layer.cut for layer in by_layer.values()) for by_layer in vectors.values())
        encoders.append({"model": format_encoder_name(group[0].cfg.encoder), "sentences_cut": cut})
        steps = [(name, layer) for layer in vectors[names[0]] for name in sets]
        for name, layer in track_progress(steps, "sentence similarity"):
            here = [subject for subject in group if subject.cfg.encoder.layer == layer]
            own, fitted_on = vectors[name][layer], vectors[fit or name][layer]
            parts = pairs[name].parts if aggregate == "wmean" else None
            rows += measure_methods(here, name, pairs[name].scores, own, fitted_on, unit_length, similarities, parts)
    return {
        "similarity": rows,
        "means": average_over_sets(rows),
        "published": compare_with_published(rows, unit_length),
        "encoders": encoders,
    }


def describe_differences(subjects: list["Subject"], rows: Rows) -> list[str]:
    """Describe how encoders and sentence pairs differ from MTEB's."""
    known, own = published.load_tables(PAPER)["cosine"].cells, rows["similarity"]
    differences = [f"encoder {name} is not in the paper" for name in list_distinct(own, "model") if name not in known]
    if subjects[0].cfg.data.root is not None:
        differences.append("sentence pairs of data.root, not of the hub's commits")
    counts = {row["set"]: row["pairs"] for row in own}
    return differences + [
        f"{find_set_name(name)} has {format_count(count, 'pair')}, not {SETS[name].pairs:,}"
        for name, count in counts.items()
        if count != SETS[name].pairs
    ]


def show(rows: Rows, fit: str | None, unit_length: bool, aggregate: str = "all") -> Shown:
    """Show the correlations beside MTEB's, by method and set, and what each method adds."""
    own, means, compared = rows["similarity"], rows["means"], rows["published"]
    by_cosine, sets = select_rows(own, {"similarity": "cosine"}), list_distinct(own, "set")
    set_headings = [*map(find_set_name, sets), *(["mean"] if len(sets) > 1 else [])]
    headings = [*(HEADINGS[name] for name in list_distinct(means, "similarity")), "gain by cosine"]
    return Shown(
        [
            *([build_published_table(compared)] if compared else []),
            build_method_table("Spearman x 100 by cosine", set_headings, by_cosine, write_mean),
            build_method_table("Spearman x 100, mean over sets, by similarity", headings, means, write_gain),
        ],
        {"gains": draw_gains(own)},
        list_notes(own, rows["encoders"], fit, unit_length, aggregate),
    )


def check_subjects(subjects: Sequence["Subject"]) -> None:
    """Raise UserError for methods and layers that can't be applied here."""
    from isobench.frozen.posthoc import check_post_hoc

    for subject in subjects:
        check_post_hoc(subject.cfg.calibration)
    kinds = {type(subject.cfg.encoder.layer) for subject in subjects}
    if {int, str} <= kinds:
        raise UserError(
            "encoder.layer: give numbers and averages of layers a command (and an output_dir) of their own"
        )


def measure_methods(
    subjects: Sequence["Subject"],
    name: str,
    scores: np.ndarray,
    own: "SentenceVectors",
    fitted_on: "SentenceVectors",
    unit_length: bool,
    names: Sequence[str],
    parts: Sequence[str] | None,
) -> list[TidyRow]:
    """Measure methods on a set of N sentence pairs: a row a method and similarity, with correlations x 100.

    These are read from the cache where they were computed before with the same vectors, scores and method.

    Args:
        subjects: one encoder and layer with each method.
        name: of the set.
        scores: the human scores, [N].
        own: the vectors of the 2N sentences, the first ones before the second ones.
        fitted_on: the vectors that calibrations are fitted on.
        unit_length: divide each vector by its length first.
        names: of the similarities.
        parts: the sub-set of each pair, [N], if correlations are those within sub-sets.
    """
    import torch

    from isobench.common.linalg import divide_by_length
    from isobench.data.cache import load_or_make_arrays, name_cached_file
    from isobench.frozen.posthoc import fit_method
    from isobench.metrics.coordinates import coordinate_share

    vectors, fitting = (
        divide_by_length(given.vectors) if unit_length else given.vectors.double() for given in (own, fitted_on)
    )
    uncalibrated, top_share = compute_correlations(vectors, scores, names, parts), coordinate_share(vectors)

    def correlate(calibration: dict[str, Any]) -> dict[str, np.ndarray]:
        transformed = fit_method(calibration, fitting)(vectors)
        return {"correlations": compute_correlations(transformed, scores, names, parts)}

    rows: list[TidyRow] = []
    for subject in subjects:
        encoder, method = subject.cfg.encoder, drop_targets_of_chain(subject.cfg.calibration)
        inputs = [own.key, fitted_on.key, unit_length, scores.tolist(), list(names), parts]
        key = sha256_json([VERSION, torch.__version__, inputs, method])
        file = name_cached_file(subject.cfg.data.cache, "sentence_vectors", "similarity", key)
        arrays = load_or_make_arrays(file, partial(correlate, subject.cfg.calibration))
        rows += [
            {
                "encoder": subject.encoder.replace(" layer=None", ""),  # the model's output
                "model": format_encoder_name(encoder),
                "layer": encoder.layer,
                "pooling": encoder.pooling,
                "method": subject.method,
                "set": name,
                "similarity": similarity,
                "pairs": len(scores),
                **dict(zip(CORRELATIONS, values.tolist(), strict=True)),
                "gain": float(values[0] - raw[0]),
                "top_share": top_share,
            }
            for similarity, values, raw in zip(names, arrays["correlations"], uncalibrated, strict=True)
        ]
    return rows


def compute_correlations(
    vectors: "Tensor", scores: np.ndarray, names: Sequence[str] = USUAL, parts: Sequence[str] | None = None
) -> np.ndarray:
    """Correlate human scores [N] with similarities of the N first and N second vectors, [2N, d].

    Returns:
        Spearman's and Pearson's correlation x 100 of each similarity, [similarities, 2]; NaN where one is undefined.
        With ``parts`` [N], the mean of the correlations within the parts, weighted by their pairs.
    """
    from isobench.metrics.task import METRIC_FUNCTIONS
    from isobench_papers.mteb.similarities import SIMILARITIES

    left, right = vectors.chunk(2)
    groups = [np.arange(len(scores))]
    if parts is not None:
        groups = [np.flatnonzero(np.array(parts) == part) for part in dict.fromkeys(parts)]
    weights = np.array([len(group) for group in groups]) / len(scores)
    correlations = np.empty((len(names), len(CORRELATIONS)))
    for name, row in zip(names, correlations, strict=True):
        values = SIMILARITIES[name](left, right).numpy()
        for i, kind in enumerate(CORRELATIONS):
            row[i] = weights @ [100 * METRIC_FUNCTIONS[kind](scores[group], values[group]) for group in groups]
    return correlations


def compare_with_published(rows: Sequence[TidyRow], unit_length: bool) -> list[TidyRow]:
    """Put our correlations x 100 of uncalibrated vectors beside MTEB's, where MTEB has the encoder.

    MTEB's vectors are means over tokens, at the model's output, of length 1. Length plays no part in a cosine. By L1
    ours are MTEB's only with ``unit_length``.
    """
    compared = []
    for row in select_rows(rows, {"method": PLAIN, "layer": None, "pooling": "mean"}):
        similarity = row["similarity"]
        if similarity != "cosine" and not (similarity == "l1" and unit_length):
            continue
        table = published.load_tables(PAPER)[similarity]
        column = published.find_column(table, row["set"], "spearman")
        values = table.cells.get(row["model"], {}).get(table.methods[PLAIN], {}).get(column or "")
        for metric, value in zip(table.form, values or [], strict=bool(values)):
            names = {"encoder": row["encoder"], "set": row["set"], "similarity": similarity, "metric": metric}
            theirs = float(value or math.nan)
            compared.append({**names, "ours": row[metric], "published": theirs, "difference": row[metric] - theirs})
    return compared


def average_over_sets(rows: Sequence[TidyRow]) -> list[TidyRow]:
    """Average the correlations and gains over the sets, by encoder, method and similarity; without undefined ones."""
    means = []
    for (encoder, method, similarity), group in group_rows(rows, "encoder", "method", "similarity").items():
        names = {"encoder": encoder, "layer": group[0]["layer"], "method": method, "similarity": similarity}
        defined = pd.DataFrame(group).dropna(subset="spearman")
        averages = defined[[*CORRELATIONS, "gain"]].mean().to_dict()
        means.append({**names, "sets": ", ".join(defined["set"]), **averages})
    return means


def build_published_table(compared: Sequence[TidyRow]) -> Table:
    """Build the table of our correlations, MTEB's, and the difference: a column a set."""
    sets = list_distinct(compared, "set")
    table = make_table("Without calibration, x 100, beside MTEB", ("encoder", ""), map(find_set_name, sets))
    for (encoder,), own in group_rows(compared, "encoder").items():
        for (similarity, metric), group in group_rows(own, "similarity", "metric").items():
            cells = {row["set"]: row for row in group}
            title = metric.capitalize() + ("" if similarity == "cosine" else f" {HEADINGS[similarity]}")
            for label, key, form in (
                (title, "ours", "{:.2f}"), ("MTEB", "published", "{:.2f}"), ("differs", "difference", "{:+.3f}"),
            ):  # fmt: skip
                numbers = (form.format(cells[name][key]) if name in cells else "-" for name in sets)
                table.add_row(encoder, label, *numbers, style="" if key == "ours" else "dim")
        table.add_section()
    return table


def build_method_table(
    title: str, headings: Sequence[str], rows: Sequence[TidyRow], write_last: Callable[[list[TidyRow]], list[str]]
) -> Table:
    """Build a table of Spearman's correlations: a section an encoder, a row a method, a column an observation.

    It shows the models' outputs, or all layers if only other layers were asked for. ``write_last`` writes a method's
    last cell, if it has one.
    """
    table = make_table(title, ("encoder, method",), headings)
    for (encoder,), own in group_rows(select_rows(rows, {"layer": None}) or rows, "encoder").items():
        table.add_row(encoder, style="bold")
        for (method,), cells in group_rows(own, "method").items():
            table.add_row(method, *(format_number(row["spearman"], ".2f") for row in cells), *write_last(cells))
        table.add_section()
    return table


def write_mean(cells: list[TidyRow]) -> list[str]:
    """Write the mean over sets; nothing for a single set."""
    return [format_number(float(np.mean([row["spearman"] for row in cells])), ".2f")] if len(cells) > 1 else []


def write_gain(cells: list[TidyRow]) -> list[str]:
    """Write the gain by cosine; an empty cell without calibration."""
    by_cosine = select_rows(cells, {"similarity": "cosine"})
    return ["" if row["method"] == PLAIN else f"{row['gain']:+.2f}" for row in by_cosine]


def find_set_name(name: str) -> str:
    """Return the printed name of a set."""
    return find_paper_column(PAPER, "cosine", name, "spearman")


def list_notes(
    rows: Sequence[TidyRow], encoders: Sequence[TidyRow], fit: str | None, unit_length: bool, aggregate: str
) -> list[str]:
    """Write what calibrations were fitted on, how vectors were made, and which sentences are long."""
    where = f"of {find_set_name(fit)}" if fit else "of the set that is evaluated (transductive; scores are not read)"
    notes = [
        f"Calibrations are fitted on the sentences {where}, as one batch: calibration.momentum plays no part.",
        "inner: inner product; ranks: Spearman's correlation of the vectors' coordinates; -L1: minus L1 distance.",
    ]
    if aggregate == "wmean":
        notes.append("Correlations are means of those within a set's sub-sets, weighted by their pairs (wmean).")
    if unit_length:
        notes.append("Every vector is divided by its length before it is calibrated.")
    if any(row["layer"] is not None for row in rows) and any(row["layer"] is None for row in rows):
        notes.append(
            "The tables show the models' outputs; other layers are in the figure and in the rows similarity."
        )
    notes += [
        f"{row['model']}: {format_count(row['sentences_cut'], 'sentence')} of its longest length or cut."
        for row in encoders
        if row["sentences_cut"]
    ]
    models = set(list_distinct(rows, "model"))
    if models & set(published.load_tables(PAPER)["cosine"].cells):
        notes += published.load_tables(PAPER)["cosine"].doubtful
    return notes


def draw_gains(rows: Sequence[TidyRow]) -> Figure:
    """Draw each method's gain by cosine against the top coordinate's share of the variance, before calibration.

    One point is an encoder, layer and set; a panel is a method. Colours are encoders, markers are layers. Methods
    with the same gains share a panel, as PCA and ZCA whitening do, which differ by a rotation only.
    """
    rows = [row for row in rows if row["similarity"] == "cosine" and row["method"] != PLAIN]
    panels = group_equal_methods(rows)
    titles = [", ".join(methods) for methods in panels] or [""]
    figure, axes = make_panel_grid(titles, 2.0, 3, sharex=True, sharey=True)
    layers = sorted(list_distinct(rows, "layer"), key=lambda layer: (layer is None, layer or 0))
    colours = dict(zip(list_distinct(rows, "model"), PALETTE, strict=False))
    markers = dict(zip(layers, MARKERS, strict=False))
    shares = [row["top_share"] for row in rows]
    ticks = [tick for tick in TICKS if shares and min(shares) / 2 <= tick <= 2 * max(shares)]
    for methods, axis in zip(panels, axes, strict=False):
        axis.axhline(0, color="0.8", linewidth=0.8, zorder=0)
        own = group_rows(select_rows(rows, {"method": methods[0]}), "model", "layer")
        for model, layer in itertools.product(colours, markers):
            points = own.get((model, layer), [])
            label = f"{model}, {'output' if layer is None else f'layer {layer}'}" if points else None
            x, y = ([row[key] for row in points] for key in ("top_share", "gain"))
            axis.plot(x, y, markers[layer], color=colours[model], markersize=3, alpha=0.8, label=label)
        axis.set(xscale="log", xlabel="top coordinate (% of variance)", ylabel="gain (points)")
        axis.set_xticks(ticks, [f"{100 * tick:g}" for tick in ticks])
        axis.minorticks_off()
        axis.tick_params(labelbottom=True, labelleft=True)
    if panels:
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return figure


def group_equal_methods(rows: Sequence[TidyRow]) -> list[list[str]]:
    """Group the methods whose gains are the same in all rows, in order of appearance."""
    groups: list[tuple[np.ndarray, list[str]]] = []
    for method in list_distinct(rows, "method"):
        gains = np.array([row["gain"] for row in select_rows(rows, {"method": method})])
        for other, methods in groups:
            if other.shape == gains.shape and np.allclose(other, gains, rtol=0, atol=SAME, equal_nan=True):
                methods.append(method)
                break
        else:
            groups.append((gains, [method]))
    return [methods for _, methods in groups]
