"""IsoBN, Table 2 and Figure 7: explained variance of the [CLS] embeddings under no calibration, BN and IsoBN."""

from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from isobench.analyses.rows import TidyRow, group_rows, name_panel
from isobench.analyses.shown import RowLabel, Rows, Shown, build_comparison_tables, find_paper_column
from isobench.common.plots import LINE_STYLES, make_panel_grid
from isobench.config.bounds import PositiveInt

if TYPE_CHECKING:  # importing it takes seconds
    from isobench.analyses.subject import Subject


def compute(subjects: list["Subject"], curve: PositiveInt) -> Rows:
    """Compute EV_k of the training set's embeddings, by encoder, method and task; NaN where they do not vary.

    Args:
        subjects: encoders x tasks x calibrations.
        curve: largest k of the figure; the paper has 50 for BERT-base, 200 for RoBERTa-large.

    Raises:
        UserError: no subject's embeddings vary.
    """
    from isobench.analyses.subject import iterate_subjects, no_variance_error
    from isobench.metrics.isotropy import explained_variance_of, squared_singular_values

    rows: list[TidyRow] = []
    varies = False
    for subject in iterate_subjects(subjects, "explained variance"):
        h = subject.calibrated()
        values = squared_singular_values(h)
        varies |= bool((values > 0).any())
        shares = explained_variance_of(values, range(1, min(curve, len(values)) + 1))
        name = {"encoder": subject.encoder, "method": subject.method, "task": subject.task}
        rows += [{**name, "k": k, "ev": share} for k, share in enumerate(shares, 1)]
    if not varies:
        raise no_variance_error(subject, len(h))
    return {"explained_variance": rows}


def show(rows: Rows) -> Shown:
    """Show Table 2 and Figure 7."""
    own = rows["explained_variance"]
    cells: dict[RowLabel, dict[str, str]] = {}
    for (encoder, method, task), line in group_rows(own, "encoder", "method", "task").items():
        text = "/".join(f"{row['ev']:.2f}" for row in line[:3])
        column = find_paper_column("isobn", "table2", task, "ev")
        cells.setdefault((encoder, method), {})[column] = "no variance" if "nan" in text else text
    return Shown(
        build_comparison_tables("IsoBN, Table 2: EV1/EV2/EV3", ("encoder", "method"), cells, "isobn", "table2"),
        {"figure7": draw_figure7(own)},
        ["BN and IsoBN by the statistics of the whole training set; the paper does not say by which."],
    )


def draw_figure7(rows: list[TidyRow]) -> Figure:
    """Draw EV_k against k: a panel for each encoder and task, a line for each method."""
    panels = group_rows(rows, "encoder", "task").values()
    figure, axes = make_panel_grid([name_panel(panel[0]) for panel in panels], 2.2)
    for panel, axis in zip(panels, axes, strict=True):
        for number, ((method,), line) in enumerate(group_rows(panel, "method").items()):
            axis.plot([row["k"] for row in line], [row["ev"] for row in line], LINE_STYLES[number % 4], label=method)
        axis.set(xlabel="k (principal components)", ylabel="EV$_k$ (share of variance)", ylim=(0, 1.02))
    axes[0].legend(loc="lower right")
    return figure
