"""Help, former commands, a bundle's report, and what is not imported too early."""

import re
import subprocess
import sys

import pytest
from helpers import ROOT

from isobench import __version__
from isobench.__main__ import COMMANDS, LISTS, main


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
