"""A report as Markdown and as LaTeX: captions, marks, chosen configurations, wide tables, characters."""

import re
import shutil
import subprocess
from dataclasses import replace

import pytest
import sample_report

from isobench.report.document import Cell, Comparison, ReportLine, ReportTable
from isobench.report.markdown_latex import format_latex, format_markdown
from isobench.report.templating import escape_latex, to_ascii


def report_of(columns=1, method="flow", settings=""):
    """Two methods, the second better (Holm), better, worse and the same, in turn."""
    comparisons = [Comparison(1.0, 0.01, holm=0.03), Comparison(1.0, 0.04, holm=0.2), Comparison(-1.0, 0.04),
                   Comparison(1.0, 0.06)]  # fmt: skip
    names = [f"C{number}" for number in range(columns)]
    plain = {name: Cell([1.0, 2.0, 3.0], [1, 2, 3], "2.00", "1.50") for name in names}
    other = {
        name: Cell([1.0, 2.0], [1, 2], "1.50", "1.50", comparison=comparisons[number % 4])
        for number, name in enumerate(names)
    }
    report = sample_report.empty()
    report.selection, report.scale = "The best epoch on the dev set.", ["at most 9 training examples"]
    lines = [ReportLine("bert", "none", plain), ReportLine("bert", method, other, settings=settings)]
    report.tables = [ReportTable("table1", "What the paper says of it", names, lines)]
    return report


def test_the_caption_is_of_our_runs():
    report = report_of()
    report.paper = "IsoBN"
    text = format_latex(report)
    (caption,) = re.findall(r"\\caption\{(.*)\}\n", text)
    assert caption == r"glue\_isobn, table1: our runs, 2 to 3 seeds a cell; the paper's cell below ours."
    (below,) = re.findall(r"\\parbox\{\\linewidth\}\{\\footnotesize (.*)\}\n", text)
    assert below.startswith(r"* better, $\dagger$ worse than plain fine-tuning: p $<$ 0.05")
    assert below.endswith(
        "Selection: The best epoch on the dev set. Not the paper's setting: at most 9 training examples."
    )
    assert "What the paper says" not in text


def test_tables_of_several_parts_have_captions_and_labels_of_their_own():
    report = report_of()
    (table,) = report.tables
    report.tables = [replace(table, part=part) for part in ("head.name=isobn", "head.name=huggingface", "é", "ê")]
    text = format_latex(report)
    captions, labels = (re.findall(rf"\\{name}\{{(.*)\}}\n", text) for name in ("caption", "label"))
    assert len(set(captions[:2])) == len(captions[:2])
    assert captions[0].startswith(r"glue\_isobn, table1, head.name=isobn: our runs")
    assert labels == [
        "tab:glue-isobn-table1-head-name-isobn", "tab:glue-isobn-table1-head-name-huggingface",
        "tab:glue-isobn-table1", "tab:glue-isobn-table1-4",
    ]  # fmt: skip
    assert all(len(caption.split()) < 25 for caption in captions)


def test_marks_are_of_the_comparison():
    text = format_latex(report_of(4))
    assert r"bert & flow & 1.50 * Holm & 1.50 * & 1.50 $\dagger$ & 1.50 \\" in text
    text = format_markdown(report_of(4))
    assert r"| 1.50 \* (Holm) \[1.50\] | 1.50 \* \[1.50\] | 1.50 † \[1.50\] | 1.50 \[1.50\] |" in text
    assert r"\* better, † worse than plain fine-tuning" in text
    plain = report_of()
    plain.tables[0].lines.pop()
    assert "better" not in format_latex(plain) + format_markdown(plain)


def test_a_line_says_which_configuration_was_chosen():
    assert r"bert & flow (strength\_x=3) &" in format_latex(report_of(settings="strength_x=3"))
    assert r"| bert | flow (strength\_x=3) |" in format_markdown(report_of(settings="strength_x=3"))
    assert "flow &" in format_latex(report_of())
    assert "| flow |" in format_markdown(report_of())


def test_only_wide_tables_are_shrunk():
    assert r"\resizebox" not in format_latex(report_of(5))
    text = format_latex(report_of(6))
    assert text.count(r"\resizebox{\linewidth}{!}{%") == text.count(r"\end{tabular}}") == 1
    assert "graphicx" in text.splitlines()[0]


def test_no_text_of_a_report_is_taken_for_markdown():
    text = format_markdown(sample_report.hostile())
    assert not re.search(r"(?<!\\)[<>`]", text)
    assert "# &lt;script&gt;alert(1)" in text


def test_what_pdflatex_cannot_take_is_in_ascii():
    assert escape_latex("β=1 ± 2, Ωé µ 漢\x07") == r"beta=1 $\pm$ 2, Omegae mu ??"
    assert all(to_ascii(chr(code)).isascii() for code in range(0x3000))


def test_a_wide_table_compiles(tmp_path):
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not installed")
    report = report_of(9, "β-flow 漢 [x] 100%_{}^~\\", "β=1, λ≥2")
    report.experiment = "β\n\\undefined"
    report.tables[0].lines[0].encoder = "[1ex]"
    (tmp_path / "tables.tex").write_text(format_latex(report), encoding="ascii")
    head = r"\documentclass{article}\usepackage{booktabs}\usepackage{graphicx}"
    (tmp_path / "main.tex").write_text(head + r"\begin{document}\input{tables}\end{document}")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "main.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout
