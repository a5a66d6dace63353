"""Texts from a record or a config that somebody else wrote are shown as they are, in every form of output."""

import csv
import re
from dataclasses import replace

import pyarrow.parquet
import pytest
from helpers import make_config, make_record

from isobench.common.terminal import print_note
from isobench.common.tidy import guard_from_formula, make_table, write_table
from isobench.config.schema import Experiment
from isobench.report.build import build_report
from isobench.report.claims import HOLDS
from isobench.report.output.page import render_claims, render_report
from isobench.report.output.templating import escape_markdown
from isobench.report.output.terminal import print_table
from isobench.report.output.text import format_latex, format_markdown
from isobench.report.tables import set_types
from isobench.runs.folder import RunFolder
from isobench.runs.run import Run
from isobench.sweep.overview import print_details, print_overview

EVIL = "[/bold]x </style><script>alert(1)</script> =cmd|calc :smile: \\input{x} $y$ \x1b[2Jz\u202e"
SHOWN = "[/bold]x </style><script>alert(1)</script> =cmd|calc :smile: \\input{x} $y$ ?[2Jz?"


def make_rows(outputs) -> list[Run]:
    """Two runs that vary in a setting whose values are hostile, with records that are hostile throughout."""
    rows = []
    for number in (1, 2):
        cfg = make_config(f"output_dir={outputs}")
        cfg.encoder.path = f"{EVIL}{number}"
        best = {"epoch": 1, "step": 2, "score": 0.5, "selection": 0.5, "isotropy": {f"={EVIL}": 0.5}}
        best[cfg.task.dev_splits[0]] = {"accuracy": 0.5, f"@{EVIL}": 0.5, "constant_predictor": False}
        parts = {"best": best, "history": [best], "warnings": [EVIL]}
        parts["scale"] = {"name": "embedded", "differs": [f"read from {EVIL}"]}
        parts["where"] = {**dict.fromkeys(("host", "machine", "job", "log"), EVIL), "share": 1}
        if number == 2:
            parts["failure"] = {"name": "crash", "message": EVIL}
        rows.append(Run(cfg, RunFolder(str(outputs), f"{number}" * 64), make_record(cfg, **parts)))
    return rows


def test_tables_on_the_terminal_show_markup_and_control_characters(tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    rows = make_rows(tmp_path)
    print_table(build_report(Experiment(), rows), rows)
    rows = [replace(row, state=state) for row, state in zip(rows, ("done", "failed"), strict=True)]
    print_overview(EVIL, rows)
    print_details(rows)
    print_note(EVIL)
    output = capfd.readouterr()
    assert "\x1b" not in output.out + output.err
    assert "\u202e" not in output.out + output.err
    assert output.err == f"isobench: {SHOWN}\n"
    plain = re.sub(r"[\s│┃]+", "", output.out)
    assert plain.count(re.sub(r"\s+", "", SHOWN)) >= 5  # title, two lines' settings or more, warning, scale, failure


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"), ("+1+cmd", "'+1+cmd"), ("-2+3", "'-2+3"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'\t=1"), ("\r=1", "'\r=1"), ("-", "-"), ("-1.5e-3", "-1.5e-3"), ("+2", "+2"),
        ("a=1", "a=1"), ("", ""),
    ],
)  # fmt: skip
def test_a_formula_is_text_in_csv_and_itself_in_parquet(tmp_path, text, expected):
    assert guard_from_formula(text) == expected
    rows = [{"name": text, f"{text}x": 1, "score": -0.5}, {"name": None, f"{text}x": None, "score": None}]
    write_table(tmp_path, "runs", make_table(rows))
    with (tmp_path / "runs.csv").open(newline="") as file:
        head, first, _ = csv.reader(file)
    assert head == ["name", guard_from_formula(f"{text}x"), "score"]
    assert first == [expected, "1", "-0.5"]
    assert pyarrow.parquet.read_table(tmp_path / "runs.parquet").to_pylist() == rows


def test_a_report_of_hostile_records_starts_no_markup(tmp_path):
    rows = make_rows(tmp_path)
    report = build_report(Experiment(name=None), rows)
    page, markdown, latex = render_report(report), format_markdown(report), format_latex(report)
    names = ("paper", "claim", "criterion", "numbers", "scale", "experiment")
    claims = render_claims([dict.fromkeys(names, EVIL) | {"outcome": HOLDS}])
    for text in (page, markdown, claims):
        assert "<script" not in text
        assert "&lt;script&gt;" in text
    assert page.lower().count("</style>") == 1
    assert "\x1b" not in markdown + latex
    assert not re.search(r"\\input|(?<!\\)\$y", latex)
    shown = escape_markdown("a|b\r\nc\u2028d <b>&amp; [x](javascript:y) `z` ~~s~~ \x1b")
    assert shown == "a\\|b c d &lt;b&gt;&amp;amp; \\[x\\](javascript:y) \\`z\\` \\~\\~s\\~\\~ ?"
    write_table(tmp_path, "runs", pyarrow.Table.from_pandas(set_types(report.runs)))
    with (tmp_path / "runs.csv").open(newline="") as file:
        cells = [cell for line in csv.reader(file) for cell in line]
    assert not [cell for cell in cells if cell[:1] in tuple("=@+")]
    assert any(cell.startswith("'=") for cell in cells)
