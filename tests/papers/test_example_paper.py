"""A sixth paper (examples/paper): it runs, reports, exports and verifies as the papers that come along do."""

import json
import re
import shlex
import shutil

import pyarrow.parquet
import pytest
from helpers import ROOT, check_done, check_refused, fails, make_config, make_record

import isobench
from isobench.common.errors import UserError
from isobench.data.scale import find_scale_differences
from isobench.papers.published import load_tables
from isobench.report.build import build_report
from isobench.runs.folder import RunFolder
from isobench.runs.run import Run

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
    check_refused(cli("papers", "--map", "isobm"))


@pytest.mark.slow
def test_a_sixth_paper_goes_from_the_run_to_the_import_of_its_bundles(cli, tiny, cache, tmp_path):
    folder = shutil.copytree(FOLDER, tmp_path / "papers" / "mypaper")  # a copy of another name works unchanged
    own, outputs, other = ["--paper", str(folder)], tmp_path / "outputs", tmp_path / "other"
    settings = ["encoder=local", f"encoder.path={tiny}", f"data.cache={cache}", f"output_dir={outputs}"]
    out, _ = check_done(cli(*own, "+experiment=greetings", *settings, "optimization.epochs=1"))
    assert len(list(outputs.glob("runs/*/result.json"))) == 6
    assert "90.00" in out  # the printed number stands beside ours
    check_done(cli("+experiment=greeting_norms", *own, *settings))
    assert "Halved vectors" in cli("papers", *own)[1]
    for name, arguments in (("greetings", settings[-1:]), ("greeting_norms", settings)):
        place, bundle = [*own, f"+experiment={name}"], str(tmp_path / f"bundle_{name}")
        check_done(cli("report", *place, *arguments))
        out, _ = check_done(cli("export", *place, *arguments, f"--to={bundle}"))
        assert shlex.join(["verify", f"--paper={folder}", bundle]) in out
        out, _ = check_done(cli("verify", *own, bundle))
        assert "fail." not in out.replace("Nothing that was checked fails.", "")
        out, _ = check_done(cli("report", *own, bundle, f"output_dir={tmp_path}/shown"))
        assert "not the paper's" in out  # its encoder
        out, _ = check_done(cli("import", *own, bundle, f"output_dir={other}"))
        *_, hint = out.strip().split("\n")
        check_done(cli(*shlex.split(hint.removeprefix("Show them: isobench "))))
    assert judge_claims(cli, outputs, own) == judge_claims(cli, other, own)
    assert judge_claims(cli, outputs, own)['"halved vectors are half as long" (Figure 1)'] == "seen here"
    before = judge_claims(cli, outputs, own)
    renamed = ["--paper", str(folder.rename(tmp_path / "papers" / "renamed"))]
    assert judge_claims(cli, outputs, renamed) == before
    check_done(cli("report", f"{tmp_path}/bundle_greetings", f"output_dir={tmp_path}/shown"))  # without the paper
    check_refused(
        cli("report", f"{tmp_path}/bundle_greeting_norms", f"output_dir={tmp_path}/shown"), "--paper=FOLDER"
    )


def judge_claims(cli, outputs, own):
    name = own[1].rpartition("/")[2]
    check_done(cli("report", f"output_dir={outputs}", *own, "--claims", name))
    rows = pyarrow.parquet.read_table(outputs / "reports" / f"claims_{name}.parquet").to_pylist()
    return {row["claim"]: row["outcome"] for row in rows}


def test_its_claims_reject_broken_numbers_under_any_name_of_its_folder(cli, tmp_path):
    folder = shutil.copytree(FOLDER, tmp_path / "mypaper_of_claims")
    code, out, err = cli("report", "--published", "--paper", str(folder), "--claims", "mypaper_of_claims")
    assert (code, err, "2 of 2 checks" in out) == (0, "", True)


def test_its_printed_numbers_differ_by_a_tenth(monkeypatch):
    monkeypatch.setenv("ISOBENCH_PAPER_FOLDERS", str(FOLDER))
    cells = load_tables("paper")["table1"].cells["minilm"]
    assert float(cells["halved"]["Greetings"][0]) - float(cells["plain"]["Greetings"][0]) == pytest.approx(0.1)


@pytest.mark.parametrize(
    "text",
    ["title: [", "title: x\ncolour: red\n", "authors: [x]\n", "", "title: x\nauthors: {a: b}\n"],
)
def test_a_broken_paper_yaml_is_one_line(cli, tmp_path, text):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "paper.yaml").write_text(text)
    check_refused(cli("--paper", f"{tmp_path}/mine", "experiments"), "paper.yaml")


def make_paper(folder, **files):
    folder.mkdir(parents=True)
    for name, text in {"paper.yaml": "title: x\n", **files}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return str(folder)


def test_a_hostile_title_does_not_reach_the_terminal(cli, tmp_path):
    folder = make_paper(tmp_path / "mine", **{"paper.yaml": 'title: "a\\x1b[2Jb\\u202e"\n'})
    for word in ([], ["--map"]):
        out, err = check_done(cli("papers", *word, "--paper", folder))
        assert "a?[2Jb?" in out
        assert "\x1b" not in out + err


@pytest.mark.slow
def test_a_new_paper_is_a_copy_of_the_example_that_works(cli, tiny, cache, tmp_path):
    folder = tmp_path / "somewhere" / "mypaper"
    out, _ = check_done(cli("papers", "--new", str(folder)))
    command = shlex.split(out.strip().split("\n")[-1].removeprefix("Try it: isobench "))
    settings = ["encoder=local", f"encoder.path={tiny}", f"data.cache={cache}", f"output_dir={tmp_path}/outputs"]
    check_done(cli(*command, *settings, "seed=1", "optimization.epochs=1"))
    texts = [file.read_text() for file in folder.rglob("*") if file.suffix in (".yaml", ".md")]
    assert not any("examples/paper" in text for text in texts)
    check_refused(cli("papers", "--new", str(folder)))


def test_the_printed_numbers_are_those_of_the_folder_and_of_now(monkeypatch, tmp_path):
    """A notebook asks before the paper is named, and after its file is corrected."""
    folder = shutil.copytree(FOLDER, tmp_path / "named_late")
    assert load_tables("named_late") == {}
    monkeypatch.setenv("ISOBENCH_PAPER_FOLDERS", str(folder))
    assert load_tables("named_late").keys() == {"table1"}
    file = folder / "published.yaml"
    file.write_text(file.read_text().replace("90.10", "91.10"))
    assert float(load_tables("named_late")["table1"].cells["minilm"]["halved"]["Greetings"][0]) == 91.1


@pytest.mark.slow
def test_a_notebook_names_a_paper_when_it_likes(monkeypatch, tiny, cache, tmp_path):
    folder = shutil.copytree(FOLDER, tmp_path / "noted")
    settings = ["encoder=local", f"encoder.path={tiny}", f"data.cache={cache}", f"output_dir={tmp_path}/outputs"]
    sweep = ["+experiment=greetings", *settings, "calibration=none", "optimization.epochs=1"]
    monkeypatch.setenv("ISOBENCH_PAPER_FOLDERS", "")
    with pytest.raises(UserError):
        isobench.run([*sweep, "seed=1"])
    isobench.run(["--paper", str(folder), *sweep, "seed=1"])
    monkeypatch.setenv("ISOBENCH_PAPER_FOLDERS", "")
    unnamed = isobench.report_table(tmp_path / "outputs")
    assert unnamed["published"].isna().all()
    assert not isobench.load_runs(tmp_path / "outputs")["scale"].str.contains("paper").any()
    isobench.run(["--paper", str(folder), *sweep, "seed=2"])
    table = isobench.report_table(tmp_path / "outputs")
    assert table["published"].tolist() == ["90.00 ± 1.0"]
    monkeypatch.setenv("ISOBENCH_PAPER_FOLDERS", "")
    assert isobench.report_table(tmp_path / "outputs", paper=folder).equals(table)
    assert (isobench.load_runs(tmp_path / "outputs")["scale"] == "encoder local is not the paper's").all()
    monkeypatch.setenv("ISOBENCH_PAPER_FOLDERS", "")
    renamed = folder.rename(tmp_path / "renamed")
    assert isobench.report_table(tmp_path / "outputs", paper=renamed)["published"].tolist() == ["90.00 ± 1.0"]


def test_papers_that_clash_are_one_line(cli, tmp_path):
    first, again = make_paper(tmp_path / "a" / "mine"), make_paper(tmp_path / "b" / "mine")
    check_refused(cli("experiments", "--paper", first, f"--paper={again}"))
    check_refused(cli("experiments", "--paper", make_paper(tmp_path / "isobn")))
    text = {"experiment/glue_isobn.yaml": "# @package _global_\n"}
    check_refused(cli("--paper", make_paper(tmp_path / "x", **text)))
    check_refused(cli("--paper", make_paper(tmp_path / "y", **{"task/rte.yaml": "name: rte\n"})))
    check_refused(cli("--paper", str(tmp_path)))
    check_refused(cli("experiments", "--paper"))


@pytest.mark.parametrize(
    "text",
    ["from isobench.report.checks import improvs\n", "import nowhere_at_all\n", "CLAIMS = [1]\n", "CLAIMS = [\n"],
)
def test_an_unknown_check_in_claims_is_one_line_and_nothing_is_written(cli, tmp_path, text):
    folder = make_paper(tmp_path / f"paper{abs(hash(text))}", **{"claims.py": text})
    (tmp_path / "outputs").mkdir()
    output_dir = f"output_dir={tmp_path}/outputs"
    check_refused(cli("report", output_dir, "--paper", folder))
    check_refused(cli("report", output_dir, "--claims", "isobm"))
    assert list((tmp_path / "outputs").iterdir()) == []


def test_an_installed_package_brings_a_paper(tmp_path, monkeypatch):
    """By an entry point of the group ``isobench.papers``; nothing of the package is imported to find it."""
    from isobench.papers.folders import _find_papers, find_papers

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
    (tmp_path / "somebody-1.dist-info" / "entry_points.txt").write_text(entry.replace("= somebodys", "= nobodys"))
    monkeypatch.setenv("ISOBENCH_PAPER_FOLDERS", "")
    with fails():
        _find_papers("", ("",))
    (tmp_path / "nobodys.py").touch()
    (tmp_path / "somebody-1.dist-info" / "entry_points.txt").write_text("[isobench.papers]\nseventh = nobodys\n")
    with fails():
        _find_papers("", ())


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


def test_the_papers_encoders_and_tasks_are_those_of_its_printed_table(monkeypatch):
    monkeypatch.setenv("ISOBENCH_PAPER_FOLDERS", str(FOLDER))
    of_paper = ("experiment.paper=paper", "experiment.tables=[table1]", "encoder=minilm", "task.name=greetings")
    assert find_scale_differences(make_config(*of_paper)) == []
    assert find_scale_differences(make_config(*of_paper, "encoder=gpt2")) == ["encoder gpt2 is not the paper's"]
    assert find_scale_differences(make_config(*of_paper[:3], "task=rte")) == ["task rte is not in the paper"]
    isobn = make_config("experiment.paper=isobn", "experiment.tables=[table1]", "encoder=gpt2", "task=wnli")
    assert find_scale_differences(isobn) == ["encoder gpt2 is not the paper's", "task wnli is not in the paper"]


MISTAKES = {
    "[90.00, 1.0]": "[ninety, 1.0]", "form: [mean, sd]": "form: mean", "what:": "wat:",
    "methods: {": "shape: 1\n  methods: {", "metric: accuracy": "time: hours", "[mean, sd]": "[mean, sd",
}  # fmt: skip


def change_paper(folder, text, wrong, monkeypatch):
    """Copy the paper into a folder with another text in its published.yaml."""
    shutil.copytree(FOLDER, folder)
    file = folder / "published.yaml"
    file.write_text(file.read_text().replace(text, wrong, 1))
    monkeypatch.setenv("ISOBENCH_PAPER_FOLDERS", str(folder))


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_in_published_yaml_is_named(monkeypatch, tmp_path, text):
    name = f"wrong{list(MISTAKES).index(text)}"
    change_paper(tmp_path / name, text, MISTAKES[text], monkeypatch)
    with fails():
        load_tables(name)


@pytest.mark.parametrize(
    ("text", "wrong", "said"),
    [
        ("task: greetings", "task: greeting", "has a task greeting: did you mean greetings?"),
        ("halved: halved", "halvd: halved", "has a method halvd: did you mean halved?"),
        ("minilm:", "minilm:", None),
    ],
)
def test_a_misspelt_task_or_method_of_a_printed_table_is_said(monkeypatch, tmp_path, text, wrong, said):
    name = f"misspelt_{text[0]}"
    change_paper(tmp_path / name, text, wrong, monkeypatch)
    cfg = make_config(f"experiment.paper={name}", "experiment.tables=[table1]", "task.name=greetings")
    cfg.calibration["name"] = "halved"
    notes = build_report(cfg.experiment, [Run(cfg, RunFolder(str(tmp_path), "1" * 64), make_record(cfg))]).notes
    assert len(notes) == (said is not None)
    assert said is None or said in notes[0]


def test_a_misspelt_task_is_said_before_a_run_and_its_correction_counts_for_runs_that_ended(
    cli, monkeypatch, tmp_path
):
    folder = tmp_path / "misspelt_table"
    change_paper(folder, "task: greetings", "task: greeting", monkeypatch)
    message = "published.yaml of misspelt_table, table1, has a task greeting: did you mean greetings?"
    assert cli("papers", "--paper", str(folder))[2].count(message) == 1
    code, _, err = cli("--paper", str(folder), "+experiment=greetings", "dry_run=true", "encoder=minilm")
    assert (code, err.count(message)) == (0, 1)
    cfg = make_config("experiment.paper=misspelt_table", "experiment.tables=[table1]", "task.name=greetings")
    scale = {"name": "embedded", "differs": find_scale_differences(cfg)}  # as earlier versions wrote it
    run = Run(cfg, RunFolder(str(tmp_path), "1" * 64), make_record(cfg, scale=scale))
    assert build_report(cfg.experiment, [run]).scale == ["task greetings is not in the paper"]
    shutil.copy(FOLDER / "published.yaml", folder)
    assert build_report(cfg.experiment, [run]).scale == []


def test_runs_of_a_paper_that_is_not_here_are_shown_with_one_line(tmp_path):
    cfg = make_config("task.name=greetings")
    cfg.experiment.paper, cfg.experiment.tables = "paper", ["table1"]
    report = build_report(cfg.experiment, [Run(cfg, RunFolder(str(tmp_path), "1" * 64), make_record(cfg))])
    assert len(report.cells) == 1
    assert report.scale == []  # what the paper's setting is can't be known
    assert report.notes == ["The printed numbers of paper are not shown: name its folder with --paper FOLDER."]
