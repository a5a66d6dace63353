"""A sixth paper (examples/paper): it runs, reports, exports and verifies as the papers that come along do."""

import shlex
import shutil

import pyarrow.parquet
import pytest
from helpers import ROOT, assert_contains, check_done, check_refused, fails, make_config

from isobench.data.scale import find_scale_differences
from isobench.papers.folders import find_papers
from isobench.papers.published import load_tables

FOLDER = ROOT / "examples" / "paper"


@pytest.mark.slow
def test_a_sixth_paper_goes_from_the_run_to_the_import_of_its_bundles(cli, tiny, cache, tmp_path, monkeypatch):
    folder = shutil.copytree(FOLDER, tmp_path / "papers" / "mypaper")  # a copy of another name works unchanged
    own, outputs, other = ["--paper", str(folder)], tmp_path / "outputs", tmp_path / "other"
    settings = ["encoder=local", f"encoder.path={tiny}", f"data.cache={cache}", f"output_dir={outputs}"]
    out, _ = check_done(cli(*own, "+experiment=greetings", *settings, "optimization.epochs=1"))
    assert len(list(outputs.glob("runs/*/result.json"))) == 6
    assert "90.00" in out  # the printed number stands beside ours
    check_done(cli("+experiment=greeting_norms", *own, *settings))
    assert "Halved vectors" in cli("papers", *own)[1]
    monkeypatch.chdir(tmp_path)
    about = cli("papers", *own, "mypaper")[1]
    assert_contains(about, "+experiment=greetings: 6 of 6", "greeting_norms: an analysis")
    assert "scale=paper" not in about.partition("\nTable 1")[2]  # its experiments have no grid for it
    for name, arguments in (("greetings", settings[-1:]), ("greeting_norms", settings)):
        place, bundle = [*own, f"+experiment={name}"], str(tmp_path / f"bundle_{name}")
        check_done(cli("report", *place, *arguments))
        check_done(cli("export", *place, *arguments, f"--to={bundle}"))
        out, _ = check_done(cli("verify", *own, bundle))
        assert "fail." not in out.replace("Nothing that was checked fails.", "")
        out, _ = check_done(cli("report", *own, bundle, f"output_dir={tmp_path}/shown"))
        assert "not the paper's" in out  # its encoder
        out, _ = check_done(cli("import", *own, bundle, f"output_dir={other}"))
        *_, hint = out.strip().split("\n")
        check_done(cli(*shlex.split(hint.removeprefix("Show them: isobench "))))
    folderless, named = (cli("report", *flags, f"output_dir={outputs}")[1] for flags in ([], own))
    assert_contains(folderless, "To find greeting_norms, greetings, add --paper=FOLDER")
    assert "To find" not in named
    out, _ = check_done(cli("report", "--published", *own, "--claims", "mypaper"))
    assert "2 of 2 checks" in out
    before = judge_claims(cli, outputs, own)
    assert before == judge_claims(cli, other, own)
    assert before['"halved vectors are half as long" (Figure 1)'] == "seen here"
    renamed = ["--paper", str(folder.rename(tmp_path / "papers" / "renamed"))]
    assert judge_claims(cli, outputs, renamed) == before
    check_done(cli("report", f"{tmp_path}/bundle_greetings", f"output_dir={tmp_path}/shown"))  # without the paper
    check_refused(cli("report", f"{tmp_path}/bundle_greeting_norms", f"output_dir={tmp_path}/shown"))


def judge_claims(cli, outputs, own):
    name = own[1].rpartition("/")[2]
    check_done(cli("report", f"output_dir={outputs}", *own, "--claims", name))
    rows = pyarrow.parquet.read_table(outputs / "reports" / f"claims_{name}.parquet").to_pylist()
    return {row["claim"]: row["outcome"] for row in rows}


def test_the_printed_numbers_are_those_of_the_folder_and_of_now(monkeypatch, tmp_path):
    folder = shutil.copytree(FOLDER, tmp_path / "named_late")
    assert load_tables("named_late") == {}
    monkeypatch.setenv("ISOBENCH_PAPER_FOLDERS", str(folder))
    assert load_tables("named_late").keys() == {"table1"}
    file = folder / "published.yaml"
    file.write_text(file.read_text().replace("90.10", "91.10"))
    assert float(load_tables("named_late")["table1"].cells["minilm"]["halved"]["Greetings"][0]) == 91.1
    whole = file.read_text()
    for right, wrong in (("[mean, sd]", "mean"), ("{Greetings: [9", "{Greetngs: [9"), ("plain: {", "plan: {")):
        file.write_text(whole.replace(right, wrong))
        with fails():
            load_tables("named_late")


def test_an_installed_package_brings_a_paper(tmp_path, monkeypatch):
    """By an entry point of the group ``isobench.papers``; nothing of the package is imported to find it."""
    for folder in (tmp_path / "somebodys_papers" / "seventh", tmp_path / "another"):
        folder.mkdir(parents=True)
        (folder / "paper.yaml").write_text("title: x\n")
        (folder / "claims.py").write_text("raise SystemExit")
    (tmp_path / "somebodys_papers" / "__init__.py").touch()
    (tmp_path / "somebody-1.dist-info").mkdir()
    (tmp_path / "somebody-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: somebody\nVersion: 1\n")
    entry = "[isobench.papers]\nseventh = somebodys_papers.seventh\n"
    (tmp_path / "somebody-1.dist-info" / "entry_points.txt").write_text(entry)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("ISOBENCH_PAPER_FOLDERS", str(tmp_path / "another"))  # so that papers are sought anew
    assert find_papers()["seventh"] == tmp_path / "somebodys_papers" / "seventh"


def test_the_papers_encoders_and_tasks_are_those_of_its_printed_table(monkeypatch):
    monkeypatch.setenv("ISOBENCH_PAPER_FOLDERS", str(FOLDER))
    of_paper = ("experiment.paper=paper", "experiment.tables=[table1]", "encoder=minilm", "task.name=greetings")
    assert find_scale_differences(make_config(*of_paper)) == []
    assert find_scale_differences(make_config(*of_paper, "encoder=gpt2")) == ["encoder gpt2 is not the paper's"]
    assert find_scale_differences(make_config(*of_paper[:3], "task=rte")) == ["task rte is not in the paper"]
    isobn = make_config("experiment.paper=isobn", "experiment.tables=[table1]", "encoder=gpt2", "task=wnli")
    assert find_scale_differences(isobn) == ["encoder gpt2 is not the paper's", "task wnli is not in the paper"]
