"""Figure 1: how long the sentence vectors are, plain and halved."""

from matplotlib.figure import Figure

from isobench.analyses.findings import Findings
from isobench.analyses.subject import Subject
from isobench.common.plots import make_panel_grid
from isobench.config.bounds import PositiveInt


def analyse(subjects: list[Subject], bins: PositiveInt) -> Findings:
    """Measure the length of every training example's vector; ``bins``: of the figure's histograms."""
    rows = [
        {"encoder": subject.encoder, "method": subject.method, "norm": norm}
        for subject in subjects
        for norm in subject.calibrated().norm(dim=1).tolist()
    ]
    return Findings(numbers={"norms": rows}, figures={"figure1": draw(rows, bins)})


def draw(rows: list[dict], bins: int) -> Figure:
    """Draw a histogram of the lengths for each method."""
    figure, (axis, *_) = make_panel_grid(["lengths of sentence vectors"], 2.2)
    for method in dict.fromkeys(row["method"] for row in rows):
        axis.hist([row["norm"] for row in rows if row["method"] == method], bins, alpha=0.5, label=method)
    axis.set(xlabel="length", ylabel="sentences")
    axis.legend()
    return figure
