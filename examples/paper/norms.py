"""Figure 1: how long the sentence vectors are, plain and halved."""

from matplotlib.figure import Figure

from isobench.analyses.shown import Rows, Shown
from isobench.common.plots import make_panel_grid
from isobench.config.bounds import PositiveInt


def compute(subjects: list, bins: PositiveInt) -> Rows:
    """Measure the length of every training example's vector; ``bins``: of the figure's histograms."""
    rows = [
        {"encoder": subject.encoder, "method": subject.method, "norm": norm}
        for subject in subjects
        for norm in subject.calibrated().norm(dim=1).tolist()
    ]
    return {"norms": rows}


def show(rows: Rows, bins: int) -> Shown:
    """Show Figure 1."""
    return Shown(figures={"figure1": draw(rows["norms"], bins)})


def draw(rows: list[dict], bins: int) -> Figure:
    """Draw a histogram of the lengths for each method."""
    figure, (axis, *_) = make_panel_grid(["lengths of sentence vectors"], 2.2)
    for method in dict.fromkeys(row["method"] for row in rows):
        axis.hist([row["norm"] for row in rows if row["method"] == method], bins, alpha=0.5, label=method)
    axis.set(xlabel="length", ylabel="sentences")
    axis.legend()
    return figure
