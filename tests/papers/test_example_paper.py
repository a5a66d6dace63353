"""A sixth paper (examples/paper): it runs, reports, exports and verifies as the papers that come along do."""

import json
import re
import shlex
import shutil

import pytest
from helpers import ROOT

from isobench.common.tidy import read_rows
from isobench.papers.published import load_tables

FOLDER = ROOT / "examples" / "paper"


def test_the_maps_commands_of_a_named_paper_name_it_too(cli, tmp_path):
    folder = shutil.copytree(FOLDER, tmp_path / "my papers" / "paper")
    code, out, err = cli("papers", "--map", "paper", "--paper", str(folder))
    assert code == 0, err
    commands = [shlex.split(text) for text in re.findall(r"`python -m isobench ([^`]+)`", out)]
    assert len(commands) >= 2
    for command in commands:
        assert command[:2] == ["--paper", str(folder)]
        code, _, err = cli(*command, "--cfg", "job")
        assert code == 0, err
    assert "isobn" not in out  # the map of one paper
    assert "--paper" not in cli("papers", "--map", "isobn")[1]
    check_one_line(cli("papers", "--map", "isobm"), "isobm is no paper: did you mean isobn")


@pytest.mark.slow
def test_a_sixth_paper_runs_reports_exports_and_verifies(cli, tiny, cache, tmp_path):
    folder = shutil.copytree(FOLDER, tmp_path / "papers" / "mypaper")  # a copy of another name works unchanged
    own, outputs = ["--paper", str(folder)], tmp_path / "outputs"
    settings = ["encoder=local", f"encoder.path={tiny}", f"data.cache={cache}", f"output_dir={outputs}"]
    code, out, err = cli(*own, "+experiment=greetings", *settings, "optimization.epochs=1")
    assert code == 0, err
    assert len(list(outputs.glob("runs/*/result.json"))) == 6
    assert "90.00" in out  # the printed number stands beside ours
    code, _, err = cli("+experiment=greeting_norms", *own, *settings)
    assert code == 0, err
    code, out, err = cli("report", *own, "+experiment=greetings", f"output_dir={outputs}")
    assert code == 0, err
    assert "Halved vectors" in cli("papers", *own)[1]
    assert cli("report", f"output_dir={outputs}", *own)[0] == 0
    claims = {
        row["claim"]: row["outcome"] for row in read_rows(outputs / "reports", "claims") if row["paper"] == "mypaper"
    }
    assert claims["Halved vectors are half as long (Figure 1)"] == "holds"
    assert claims["Halving improves nothing (Table 1)"] in ("holds", "undecided")
    code, _, err = cli("export", *own, "+experiment=greetings", f"output_dir={outputs}", f"--to={tmp_path}/bundle")
    assert code == 0, err
    code, out, err = cli("verify", *own, f"{tmp_path}/bundle")
    assert code == 0, out + err


def test_its_printed_numbers_differ_by_a_tenth(monkeypatch):
    monkeypatch.setenv("ISOBENCH_PAPER_FOLDERS", str(FOLDER))
    cells = load_tables("paper")["table1"].cells["minilm"]
    assert float(cells["halved"]["Greetings"][0]) - float(cells["plain"]["Greetings"][0]) == pytest.approx(0.1)


BROKEN = {
    "title: [": "paper.yaml can't be read",
    "title: x\ncolour: red\n": "paper.yaml: colour: ",
    "authors: [x]\n": "paper.yaml: title: ",
}


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_paper_yaml_is_one_line(cli, tmp_path, text):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "paper.yaml").write_text(text)
    check_one_line(cli("--paper", f"{tmp_path}/mine", "experiments"), BROKEN[text])


def check_one_line(result, message):
    code, out, err = result
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert message in err


def make_paper(folder, **files):
    folder.mkdir(parents=True)
    for name, text in {"paper.yaml": "title: x\n", **files}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return str(folder)


def test_papers_that_clash_are_one_line(cli, tmp_path):
    first, again = make_paper(tmp_path / "a" / "mine"), make_paper(tmp_path / "b" / "mine")
    check_one_line(cli("experiments", "--paper", first, f"--paper={again}"), "two papers are called mine")
    check_one_line(cli("experiments", "--paper", make_paper(tmp_path / "isobn")), "two papers are called isobn")
    text = {"experiment/glue_isobn.yaml": "# @package _global_\n"}
    check_one_line(cli("--paper", make_paper(tmp_path / "x", **text)), "experiment=glue_isobn is in ")
    check_one_line(cli("--paper", make_paper(tmp_path / "y", **{"task/rte.yaml": "name: rte\n"})), "task=rte is in ")
    check_one_line(cli("--paper", make_paper(tmp_path / "not-a-name")), "a name of Python")
    check_one_line(cli("--paper", str(tmp_path)), "it needs a paper.yaml")
    check_one_line(cli("experiments", "--paper"), "--paper needs a value")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("from isobench.report.checks import improvs\n", "cannot import name 'improvs'"),
        ("CLAIMS = [1]\n", "CLAIMS must be a list"),
        ("CLAIMS = [\n", "claims.py"),
    ],
)
def test_an_unknown_check_in_claims_is_one_line_and_nothing_is_written(cli, tmp_path, text, message):
    folder = make_paper(tmp_path / f"paper{abs(hash(text))}", **{"claims.py": text})
    (tmp_path / "outputs").mkdir()
    check_one_line(cli("report", f"output_dir={tmp_path}/outputs", "--paper", folder), message)
    assert list((tmp_path / "outputs").iterdir()) == []


def test_an_installed_package_brings_a_paper(tmp_path, monkeypatch):
    """By an entry point of the group ``isobench.papers``; nothing of the package is imported to find it."""
    from isobench.papers.folders import find_papers

    make_paper(tmp_path / "somebodys_papers" / "seventh")
    (tmp_path / "somebodys_papers" / "__init__.py").touch()
    (tmp_path / "somebody-1.dist-info").mkdir()
    (tmp_path / "somebody-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: somebody\nVersion: 1\n")
    entry = "[isobench.papers]\nseventh = somebodys_papers.seventh\n"
    (tmp_path / "somebody-1.dist-info" / "entry_points.txt").write_text(entry)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv(
        "ISOBENCH_PAPER_FOLDERS", str(make_paper(tmp_path / "another"))
    )  # else papers are not sought anew
    assert find_papers()["seventh"] == tmp_path / "somebodys_papers" / "seventh"


CODE = """
import isobench.papers.folders as folders
folders.experiments_dir = lambda: {empty!r}
assert folders.find_papers() == {{}}
from isobench.__main__ import main
main()
"""


@pytest.mark.slow
def test_the_core_runs_without_any_paper(tmp_path, tiny, reviews, cache):
    import subprocess
    import sys

    arguments = ["task=sst2", f"data.root={reviews}", f"data.cache={cache}", "encoder=local", f"encoder.path={tiny}"]
    arguments += ["calibration=isobn_paper", "task.train_samples=64", "optimization.epochs=1", "tracking=none"]
    command = [sys.executable, "-c", CODE.format(empty=str(tmp_path / "none")), *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (record,) = tmp_path.glob("outputs/runs/*/result.json")
    assert json.loads(record.read_text())["status"] == "finished"
