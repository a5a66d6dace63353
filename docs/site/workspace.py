"""Draw what the workspace of ``isobench dashboard`` shows, from runs that ship and not from a W&B server.

    python docs/site/workspace.py

It writes ``docs/figures/workspace.svg``: panels of the workspace by their own titles, with the 20 runs of glue_isobn
on Rotten Tomatoes. W&B draws the same numbers with its own look.
"""

import sys
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import isobench  # noqa: E402
from isobench.analyses.shown import Shown  # noqa: E402
from isobench.cli.dashboard import _build_workspace  # noqa: E402
from isobench.common.plots import PALETTE, make_panel_grid, use_figure_style  # noqa: E402
from isobench.runs.plan import read_runs  # noqa: E402

BUNDLE = ROOT / "experiments" / "isobn" / "results" / "glue_isobn"
FILE = ROOT / "docs" / "figures" / "workspace.svg"
TASK = "rotten_tomatoes"
PANELS = (  # by their titles in the workspace; records have no curve of the training loss
    "Reported epoch: score", "Score and EV1 of the embeddings", "validation/accuracy", "embedding: EV1",
    "embedding: IsoScore", "embedding: I1", "embedding: I2", "embedding: EV10",
)  # fmt: skip


def find_panels() -> dict[str, Any]:
    """Find the workspace's panels by their titles."""
    configs = [run.cfg for run in read_runs(str(BUNDLE)) if run.cfg.task.name == TASK]
    workspace = _build_workspace({"entity": "me", "project": "isobench"}, "glue_isobn", configs)
    panels = [panel for section in workspace.sections for panel in section.panels]
    return {panel.title: panel for panel in panels if hasattr(panel, "title")}


def draw_panel(axis: Axes, panel: Any, runs: pd.DataFrame, epochs: pd.DataFrame) -> None:
    """Draw a panel: bars or points of the runs' summaries, or curves by epoch, a colour for each method."""
    for place, (method, own) in enumerate(runs.groupby("method")):
        colour = PALETTE[place]
        if type(panel).__name__ == "BarPlot":
            axis.barh(method, own["score"].mean() / 100, color=colour)
        elif type(panel).__name__ == "ScatterPlot":
            axis.scatter(own["embedding/ev1"], own["score"] / 100, s=9, color=colour)
            axis.set(xlabel="best/isotropy/embedding/ev1", ylabel="best/score")
        else:
            name = panel.y[0] if isinstance(panel.y[0], str) else panel.y[0].name
            curves = epochs[epochs["method"] == method].assign(score=epochs["score"] / 100)
            column = "score" if name.startswith("dev/") else name.removeprefix("isotropy/")
            means = curves.groupby("epoch")[column].mean().dropna()
            axis.plot(means.index, means, color=colour, marker="o", markersize=3, label=method)
            axis.set(xlabel="epoch", xticks=means.index)


def draw() -> bytes:
    """Draw the picture as an SVG file, the same bytes each time."""
    runs, epochs = (load(BUNDLE).query("task == @TASK") for load in (isobench.load_runs, isobench.load_epochs))
    panels = find_panels()
    with use_figure_style():
        figure, axes = make_panel_grid(PANELS, 1.7)
        figure.set_facecolor("white")
        for axis, title in zip(axes, PANELS, strict=True):
            draw_panel(axis, panels[title], runs, epochs)
        figure.legend(*axes[-1].get_legend_handles_labels(), loc="outside lower center", ncols=len(PALETTE))
    return Shown([], {"workspace": figure}).draw()["workspace"]


if __name__ == "__main__":
    FILE.write_bytes(draw())
