"""IsoBN, Table 2 and Figure 7: explained variance of the [CLS] embeddings under no calibration, BN and IsoBN."""

from typing import Any

from matplotlib.figure import Figure

from isobench.analyses.findings import Findings, RowLabel, build_comparison_tables, find_paper_column
from isobench.analyses.rows import list_distinct, select_rows
from isobench.analyses.setting_checks import no_variance_error
from isobench.analyses.subject import Subject, collect_scale_notes, iterate_subjects
from isobench.common.plots import LINE_STYLES, make_panel_grid
from isobench.config.bounds import PositiveInt
from isobench.metrics.isotropy import explained_variance_of, squared_singular_values

NO_VARIANCE = "no variance"


def analyse(subjects: list[Subject], curve: PositiveInt) -> Findings:
    """Compute EV_k of the training set's embeddings, by encoder, method and task; NaN where they do not vary.

    Args:
        subjects: encoders x tasks x calibrations.
        curve: largest k of the figure; the paper has 50 for BERT-base, 200 for RoBERTa-large.

    Raises:
        UserError: no subject's embeddings vary.
    """
    rows: list[dict[str, Any]] = []
    cells: dict[RowLabel, dict[str, str]] = {}
    for subject in iterate_subjects(subjects, "explained variance"):
        h = subject.calibrated()
        values = squared_singular_values(h)
        shares = explained_variance_of(values, range(1, min(curve, len(values)) + 1))
        name = {"encoder": subject.encoder, "method": subject.method, "task": subject.task}
        rows += [{**name, "k": k, "ev": share} for k, share in enumerate(shares, 1)]
        varies = bool(values.any())
        text = "/".join(f"{share:.2f}" for share in shares[:3]) if varies else NO_VARIANCE
        column = find_paper_column("isobn", "table2", subject.task, "ev")
        cells.setdefault((subject.encoder, subject.method), {})[column] = text
    if all(text == NO_VARIANCE for texts in cells.values() for text in texts.values()):
        raise no_variance_error(subject, len(h))
    return Findings(
        numbers={"explained_variance": rows},
        figures={"figure7": draw_figure7(rows)},
        tables=build_comparison_tables(
            "IsoBN, Table 2: EV1/EV2/EV3", ("encoder", "method"), cells, "isobn", "table2"
        ),
        notes=["BN and IsoBN by the statistics of the whole training set; the paper does not say by which."],
        differs=collect_scale_notes(subjects, "encoder", "task"),
    )


def draw_figure7(rows: list[dict[str, Any]]) -> Figure:
    """Draw EV_k against k: a panel for each encoder and task, a line for each method."""
    panels = list(dict.fromkeys((row["encoder"], row["task"]) for row in rows))
    figure, axes = make_panel_grid([f"{encoder}, {task}" for encoder, task in panels], 2.2)
    for (encoder, task), axis in zip(panels, axes, strict=True):
        panel_rows = select_rows(rows, {"encoder": encoder, "task": task})
        for number, method in enumerate(list_distinct(panel_rows, "method")):
            line = select_rows(panel_rows, {"method": method})
            axis.plot([row["k"] for row in line], [row["ev"] for row in line], LINE_STYLES[number % 4], label=method)
        axis.set(xlabel="k (principal components)", ylabel="EV$_k$ (share of variance)", ylim=(0, 1.02))
    axes[0].legend(loc="lower right")
    return figure
