"""Help, former commands, a bundle's report, and what is not imported too early."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import ROOT, check_done

from isobench import __version__
from isobench.__main__ import COMMANDS, LISTS, main
from isobench.cli.command import split_folders


def test_help_names_what_there_is(cli):
    code, out, _ = cli("--help")
    assert code == 0
    for name in ("+experiment=glue_isobn -m seed=1,2,3,4,5", "rotten_tomatoes", "isobn_released", "data.root=FOLDER"):
        assert name in out
    for word in (*COMMANDS, "papers", "tasks"):
        assert re.search(rf"^{word} +\w", out, re.MULTILINE)
    assert cli("--version") == (0, f"isobench {__version__}\n", "")


@pytest.mark.parametrize("word", [*COMMANDS, *LISTS])
def test_a_commands_help_has_its_usage_an_example_and_a_page(command, word):
    _, out, _ = command(main, word, "--help")
    assert out.startswith(f"usage: isobench {word} [-h] ")
    example, page = re.search(r"^example: isobench (.+)\npage: +(.+)$", out, re.MULTILINE).groups()
    assert example.startswith(word)
    assert (ROOT / page).is_file()


@pytest.mark.slow
def test_a_bundles_report_goes_where_output_dir_says(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bundle = str(ROOT / "experiments" / "isobn" / "results" / "isobn_ev")
    code, _, err = cli("report", bundle, "output_dir=elsewhere")
    assert (code, err) == (0, "")
    assert [file.name for file in tmp_path.iterdir()] == ["elsewhere"]
    for wrong in (["output_dir="], ["seed=1"], ["+experiment=isobn_ev"], ["other"]):
        code, out, err = cli("report", bundle, *wrong)
        assert (code, out, err.count("\n")) == (2, "", 1), wrong


@pytest.mark.parametrize(
    ("text", "is_folder"),
    [
        ("bundle", True), ("a/b", True), ("./a=b", True), ("../a=b", True), ("/x/a=b", True), ("~/a=b", True),
        ("hydra/launcher=slurm", False), ("+experiment=x", False), ("output_dir=a/b", False), ("~task", False),
        ("hydra.launcher.setup=[a/b=c]", False), ("+x", False), ("data.files={train: a=b.csv}", False),
    ],
)  # fmt: skip
def test_a_folder_is_told_from_a_setting(text, is_folder):
    folders, settings = split_folders([text])
    assert ([folder.name for folder in folders], settings) == (([Path(text).name], []) if is_folder else ([], [text]))


@pytest.mark.slow
def test_status_report_and_export_take_a_sweeps_launcher(cli, small, outputs, tmp_path):
    sweep = [*small, "+experiment=glue_isobn", "calibration=none", "seed=1", "optimization.epochs=1"]
    check_done(cli(*sweep))
    for place in ([*sweep, "hydra/launcher=slurm"], ["+experiment=glue_isobn", f"output_dir={outputs}"]):
        for word in (["status"], ["report"], ["export", f"--to={tmp_path}/bundle"]):
            check_done(cli(*word, *place, *(["hydra/launcher=slurm"] if len(place) == 2 else [])))


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["--help"], ["task=rtee"], ["--cfg", "job"], ["optimization.lr=0"]])
def test_nothing_heavy_is_imported_before_a_config_is_valid(arguments):
    code = (
        "import sys; from isobench.__main__ import main\n"
        f"sys.argv = ['isobench', *{arguments}]\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'transformers', 'pytorch_lightning', 'datasets', 'wandb', 'numpy', 'pyarrow'}\n"
        "print('HEAVY', sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "HEAVY []", done.stdout + done.stderr
