"""The marks of a table: by the t-test that the paper uses, with Welch's beside it; on the paper's printed numbers."""

import pytest
from helpers import make_ended_run

from isobench.config.schema import Experiment
from isobench.papers import published
from isobench.report.build import build_report
from isobench.report.cells import compare
from isobench.report.output.page import render_report
from isobench.report.output.text import format_latex, format_markdown
from isobench.runs.run import Run

GLUE = Experiment("glue_calibration", "isotropy_calibration", ["table1"])


def triple(mean: float, sd: float) -> list[float]:
    """Three numbers with this mean and this sample deviation."""
    return [mean - sd, mean, mean + sd]


def test_the_printed_numbers_get_the_marks_that_the_papers_text_names():
    """All 88 pairs of Table 1: two gains by Student's test, none by Welch's; the printed WNLI star is not one."""
    table = published.load_tables("isotropy_calibration")["table1"]
    assert table.marks == "student"
    marks = {}
    for encoder, rows in table.cells.items():
        for row, cells in rows.items():
            for column, (mean, sd) in cells.items():
                if row != "plain" and sd is not None:
                    marks[encoder, row, column] = compare(
                        triple(mean, sd), triple(*rows["plain"][column]), table.marks
                    )
    assert len(marks) == 88
    text = {("roberta-base", "cosreg", "MNLI-mm"), ("roberta-base", "spectrum_exp", "WNLI")}
    assert {key for key, found in marks.items() if found["mark"] == "*"} == text
    assert sum(found["mark"] == "†" for found in marks.values()) == 14
    assert marks["roberta-base", "spectrum_exp", "WNLI"]["p_student"] == pytest.approx(0.016, abs=5e-4)
    assert marks["roberta-base", "spectrum_pol", "WNLI"]["p_student"] == pytest.approx(0.054, abs=5e-4)
    assert all(marks[key]["p"] >= 0.05 for key in text)


def wnli_rows() -> list[Run]:
    """Runs of RoBERTa on WNLI whose scores have the printed means and deviations."""
    content = published.load_tables("isotropy_calibration")["table1"]
    rows = []
    for method in ("none", "spectrum_polynomial", "spectrum_exponential"):
        for seed, score in enumerate(triple(*content.cells["roberta-base"][content.methods[method]]["WNLI"]), 1):
            names = ("task=wnli", "encoder=roberta-base", f"calibration={method}", f"seed={seed}")
            rows.append(make_ended_run(score / 100, *names))
    return rows


def test_a_report_marks_by_the_papers_test_and_shows_welchs_beside_it():
    report = build_report(GLUE, wnli_rows(), with_pairs=False)
    cells = {cell.method: cell for cell in report.cells.itertuples()}
    ours = {method: f"{cell.ours} {cell.mark}".strip() for method, cell in cells.items() if method != "none"}
    assert ours == {"spectrum_polynomial": "57.28 ± 1.62", "spectrum_exponential": "56.34 ± 0.00 *"}
    cell = cells["spectrum_exponential"]
    assert cell.mark_test == "student"
    assert cell.p_student == pytest.approx(0.016, abs=5e-4)
    assert cell.p == pytest.approx(0.057, abs=5e-4)
    (view,) = report.views
    assert "1 survives Holm's correction" in view.notes[0]
    assert "0 of 2 have p < 0.05; 0 survive Holm's correction" in view.notes[1]  # by Welch's test
    page, text, tex = render_report(report), format_markdown(report), format_latex(report)
    assert '<th scope="col">Student p</th><th scope="col">Welch p</th>' in page
    assert "<td>.016</td><td>.057</td>" in page
    assert all("Student" in form and "Welch" in form for form in (page, text, tex))
    assert r"56.34 ± 0.00 \*" in text
    assert "0 with p < 0.05 (Welch's t-test" in " ".join(report.evidence)  # what the runs support is by Welch's test
