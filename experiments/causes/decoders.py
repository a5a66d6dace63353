"""Decoders read without a few tokens: how far measures of isotropy rest on first tokens and on outlying states."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from isobench.analyses.rows import TidyRow, group_rows, list_distinct
from isobench.analyses.shown import Rows, Shown, format_number, make_table
from isobench.common.errors import UserError
from isobench.common.plots import LINE_STYLES, PALETTE, make_panels
from isobench.config.bounds import NOT_EMPTY, PositiveInt, above, below
from isobench_papers.too_much_in_common.corpus import Corpus, open_corpus

if TYPE_CHECKING:  # importing them takes seconds
    from torch import Tensor

    from isobench.analyses.subject import Subject
    from isobench.config.schema import Config

EVERYTHING = "nothing"  # is left out
MEASURES = {
    "ev1": "EV1",
    "isoscore": "IsoScore",
    "trimmed_isoscore": "trimmed IsoScore",
    "average_cosine": "average cosine",
}
FEW = 0.1  # a measure that changes by a smaller share of its value does not rest on what is left out


def compute(
    subjects: list["Subject"],
    corpus: str,
    passages: PositiveInt,
    words: PositiveInt,
    farthest: Annotated[list[Annotated[float, above(0), below(1)]], NOT_EMPTY],
) -> Rows:
    """Measure the states of tokens at each layer: of all, and of all but a few.

    In turn these are left out: nothing, the first token of each text, states with an outlying norm
    (`isobench.metrics.mask_tokens`), and the states that are farthest from the median of each coordinate.

    Args:
        subjects: decoders x layers.
        corpus: name of the running text (`isobench_papers.too_much_in_common.corpus`).
        passages: texts, cut from the start of the running text.
        words: of a passage.
        farthest: shares of the states that are left out, rounded up.

    Raises:
        UserError: the corpus is unknown, or has fewer words.
    """
    from isobench import metrics
    from isobench.analyses.subject import iterate_subjects

    texts = cut_passages(open_corpus(corpus, subjects[0].cfg.data), passages, words)
    rows: list[TidyRow] = []
    for subject in iterate_subjects(subjects, "states of tokens"):
        layer = subject.cfg.encoder.layer
        names = {"encoder": subject.cfg.encoder.name, "layer": "last" if layer is None else str(layer)}
        for left_out, states in select_states(subject.cfg, texts, farthest).items():
            measures = {"ev1": metrics.explained_variance(states, 1)}
            measures |= {name: getattr(metrics, name)(states) for name in MEASURES if name not in measures}
            rows.append(names | {"left_out": left_out, "tokens": len(states)} | measures)
    return {"layers": rows}


def cut_passages(corpus: Corpus, passages: int, words: int) -> list[str]:
    """Cut the first passages of a corpus's running text."""
    found: list[str] = []
    for batch in corpus.iter_batches():
        found += " ".join(batch).split()
        if len(found) >= passages * words:
            return [" ".join(found[start : start + words]) for start in range(0, passages * words, words)]
    raise UserError(
        f"analysis.passages={passages} of {words} words need {passages * words} words, and the corpus {corpus.name} "
        f"has {len(found)}: choose fewer passages, or shorter ones by analysis.words"
    )


def select_states(cfg: "Config", texts: Sequence[str], farthest: Sequence[float]) -> dict[str, "Tensor"]:
    """Compute the states at the config's layer, [M, d], by what is left out of them."""
    import torch

    from isobench.frozen.encode import FrozenEncoder
    from isobench.metrics import mask_tokens

    layer = cfg.encoder.layer
    encoder = FrozenEncoder(cfg, [layer])
    whole, without_first = (
        torch.cat(list(encoder.iterate_tokens(texts, layer, kinds))) for kinds in ((), ("first",))
    )
    unknown = torch.ones(len(whole))  # positions and special tokens, which norms don't depend on
    distances = torch.linalg.vector_norm(whole.double() - whole.double().median(0).values, dim=1)
    nearest = distances.argsort(stable=True)
    return {
        EVERYTHING: whole,
        "first tokens": without_first,
        "outlying norms": whole[mask_tokens(whole, unknown, unknown, ("outlying",))],
    } | {f"{share:.3g}": whole[nearest[: len(whole) - math.ceil(share * len(whole))]] for share in farthest}


def show(rows: Rows) -> Shown:
    """Show each measure by layer and by what is left out, and say how often little changes."""
    layers = rows["layers"]
    tables, notes = [], []
    for (encoder,), own in group_rows(layers, "encoder").items():
        kinds = group_rows(own, "left_out")
        for name, label in MEASURES.items():
            headings = [name_kind(kind) for (kind,) in kinds]
            table = make_table(f"{label} of {encoder} without ...", ("layer",), headings, True)
            for (layer,), cells in group_rows(own, "layer").items():
                table.add_row(layer, *(format_number(cell[name], ".3g") for cell in cells))
            tables.append(table)
        ((_, whole), *others) = kinds.items()
        for (kind,), without in others:
            pairs = list(zip(whole, without, strict=True))
            counts = ", ".join(
                f"{label} in {sum(abs(other[name] - row[name]) < FEW * abs(row[name]) for row, other in pairs)}"
                for name, label in MEASURES.items()
            )
            changes = f"of {len(whole)} layers, a measure changes by less than a tenth: {counts}"
            notes.append(f"{encoder} without {name_kind(kind)}: {changes}.")
    return Shown(tables, {"decoders": draw_layers(layers)}, notes)


def name_kind(kind: str) -> str:
    return kind if kind[0].isalpha() else f"the farthest {100 * float(kind):g}%"


def draw_layers(layers: Sequence[TidyRow]) -> Figure:
    """Draw IsoScore and its trimmed variant by layer, a line for what is left out."""
    encoders = group_rows(layers, "encoder")
    figure, axes = make_panels(len(encoders), 2, 2.2, sharex="row", sharey="row")
    for row, ((encoder,), cells) in zip(axes, encoders.items(), strict=True):
        for axis, name in zip(row, ("isoscore", "trimmed_isoscore"), strict=True):
            for place, ((kind,), own) in enumerate(group_rows(cells, "left_out").items()):
                style = {"color": PALETTE[place], "linestyle": LINE_STYLES[place % len(LINE_STYLES)]}
                x, y = ([cell[column] for cell in own] for column in ("layer", name))
                axis.plot(x, y, label=name_kind(kind), **style)
            axis.set_yscale("log")
            axis.set_title(f"{encoder}: {MEASURES[name]}")
            axis.set_xlabel("layer")
            axis.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=5, title="without")
    return figure


def describe_differences(subjects: list["Subject"], rows: Rows) -> list[str]:
    """Describe the decoders: there is no paper whose numbers these are."""
    return [f"token states of {', '.join(list_distinct(rows['layers'], 'encoder'))}"]
