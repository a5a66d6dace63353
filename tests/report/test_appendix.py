"""The section for a paper's appendix: facts from the records, unknown ones named, and nothing that breaks LaTeX."""

import re
import shutil
import subprocess
from collections import Counter
from copy import deepcopy
from dataclasses import replace

import pytest
from made_up_folder import write_folder

from isobench.cli.report import report as report_command
from isobench.common.errors import UserError
from isobench.report.build import build_report
from isobench.report.output.appendix import format_appendix
from isobench.report.output.page import write_report
from isobench.runs import plan
from isobench.runs.state import add_states

EVIL = "[x]*\\input{/etc/passwd} \\end{itemize} 100% #1 a&b a_b $y$ {~^} β 漢\n\\\\"
PROVENANCE = {
    "git": {"commit": "c0ffee", "dirty": False}, "python": "3.12.1", "versions": {"torch": "2.9.0", "wandb": None},
    "platform": "Linux-6.1", "cpu": "Fast CPU", "cores": 8, "threads": 2, "gpus": [], "command": ["isobench"],
}  # fmt: skip


def read_runs(folder):
    return add_states(plan.read_runs(str(folder)))


def write_section(folder, rows=None, experiment=None):
    rows = rows or read_runs(folder)
    experiment = experiment or rows[0].cfg.experiment
    return format_appendix(build_report(experiment, rows), rows)


def assert_sound_latex(text):
    """Environments and groups are closed in order, and every special character is part of a known command."""
    body = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    opened = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", body):
        if kind == "begin":
            opened.append(name)
        else:
            assert opened.pop() == name
    assert opened == []
    commands = set(re.findall(r"\\([A-Za-z]+)", body))
    assert commands <= {
        "begin", "end", "begingroup", "endgroup", "sloppy", "section", "label", "subsection", "paragraph", "item",
        "toprule", "midrule", "bottomrule", "linewidth", "textbackslash", "textasciitilde", "textasciicircum", "pm",
        "dagger", "times", "texttt", "raggedright", "par",
    }  # fmt: skip
    assert text.isascii()
    assert not re.search(r"(?<!\\)[%#_~^]", body)
    for line in body.splitlines():  # ampersands only separate the columns of the table, five in each of its rows
        assert len(re.findall(r"(?<!\\)&", line)) in (0, 5), line
    depth = 0
    for brace in re.findall(r"(?<!\\)[{}]", body):
        depth += 1 if brace == "{" else -1
        assert depth >= 0
    assert depth == 0
    assert all(number % 2 == 0 for number in Counter(re.findall(r"(?<!\\)\$", body)).values())


def compile_latex(text, folder):
    """Compile a section with pdflatex, if there is one, and return its log; None if there is none."""
    program = shutil.which("pdflatex")
    if program is None:
        return None
    (folder / "appendix.tex").write_text(text, encoding="ascii")
    head = r"\documentclass{article}\usepackage{booktabs}"
    (folder / "main.tex").write_text(head + r"\begin{document}\appendix\input{appendix}\end{document}")
    command = [program, "-interaction=nonstopmode", "-halt-on-error", "main.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]
    return done.stdout


def test_the_section_tells_what_the_records_tell(tmp_path):
    gpu = PROVENANCE | {"gpus": ["H100", "H100"], "git": None, "python": "3.13.0", "cores": None}
    cost = {"seconds": 3600.0, "training_seconds": 1800.0, "peak_memory_mib": {"resident": 2048.0, "gpu": 1024.0}}
    where = {"host": "secret-host", "machine": "secret-host", "job": None, "log": "/home/me/log", "share": 2}
    data = {"fingerprint": {"train": "ab"}, "examples": {"train": 1234, "validation": 56}, "max_length": 128,
            "at_limit": {"train": 7, "validation": 0}}  # fmt: skip
    parts = {("none", seed): {"provenance": PROVENANCE, "data": data} for seed in (1, 2, 3)}
    parts |= {("isobn_paper", seed): {"provenance": gpu, "cost": cost, "where": where, "attempts": 2, "data": data}
              for seed in (1, 2)}  # fmt: skip
    failure = {"name": "out_of_memory", "message": "x"}
    parts["isobn_paper", 3] = {"failure": failure, "provenance": gpu, "cost": cost, "data": data}
    write_folder(tmp_path, parts=parts, name="glue_isobn", paper="isobn", tables=["table1"])
    text = write_section(tmp_path)
    assert_sound_latex(text)
    for fact in (
        r"\section{Reproducibility of glue\_isobn}",
        "has 6 runs (5 done, 1 failed). What follows is of the 6 runs with a record.",
        "Examples: train 1,234, validation 56.",
        "Longest text kept: 128 tokens. Texts as long as the limit or cut: train 7.",
        "Seeds.} 1, 2, 3.",
        r"\item isobench: commit c0ffee or an installed package",
        r"\item torch: 2.9.0",
        r"\item wandb: not installed",
        r"\item Python: 3.12.1 or 3.13.0",
        r"{}Fast CPU, 2 threads a run & 3 & 0 & 0.01 & 0.01 & 0.15 \\",
        r"{}H100, H100, 2 threads a run & 3 & 1 & 3.00 & 1.50 & 60.00 \\",
        "2.0; 1.0 on the GPU GiB.",
        "2 of its runs shared the device with others, so that their hours overlap.",
        r"\texttt{optimization.lr=2e-05};",
        "beta=0.5",
        "Energy was not measured.",
    ):
        assert fact in text, fact
    assert "secret-host" not in text
    assert "/home/me" not in text


def test_hostile_names_stay_text(tmp_path):
    evil = PROVENANCE | {"cpu": EVIL, "python": EVIL, "platform": EVIL, "versions": {EVIL: EVIL}, "gpus": [EVIL]}
    evil["git"] = {"commit": EVIL, "dirty": True}
    scale = {"name": "x", "differs": [f"read from {EVIL}"]}
    parts = {("none", seed): {"provenance": evil, "seeds": {EVIL: 1}, "scale": scale}
             for seed in (1, 2)}  # fmt: skip
    parts["none", 2]["failure"] = {"name": EVIL, "message": EVIL}
    parts["none", 1]["data"] = {"fingerprint": {EVIL: EVIL}, "examples": {EVIL: 1}, "at_limit": {EVIL: 1}}
    write_folder(tmp_path, ("none",), (1, 2), parts=parts)
    rows = deepcopy(read_runs(tmp_path))  # configs that are read share their sections
    experiment = rows[0].cfg.experiment
    for row in rows:
        row.cfg.task.name = row.cfg.task.primary = row.cfg.encoder.name = row.cfg.encoder.path = EVIL
        row.cfg.task.metrics = [EVIL]
        row.cfg.calibration |= {"name": EVIL, EVIL: EVIL}
    named = replace(experiment, name=EVIL, paper=EVIL)
    built = replace(build_report(experiment, rows), experiment=named, rule=EVIL)
    text = format_appendix(built, rows)
    assert_sound_latex(text)
    assert text.count(r"\textbackslash{}input\{/etc/passwd\}") > 10
    assert "\\input{" not in text.partition("\n")[2]
    assert text.count("\n", 0, text.index("\\begingroup")) == 2  # the comment at the start is one line
    compile_latex(text, tmp_path)


def test_it_is_written_beside_the_report_and_needs_an_experiment(tmp_path):
    write_folder(tmp_path, ("none",), (1,))
    rows = read_runs(tmp_path)
    built = build_report(rows[0].cfg.experiment, rows)
    page = write_report(built, rows, appendix=True)
    assert (page.parent / "appendix.tex").read_text() == format_appendix(built, rows)
    with pytest.raises(UserError, match=r"--appendix is of one experiment: add \+experiment=NAME"):
        report_command([f"output_dir={tmp_path}"], appendix=True)
