"""Folders and settings are told apart, a bundle's report has its place, and nothing heavy is imported too early."""

import subprocess
import sys
from pathlib import Path

import pytest
from helpers import ROOT, check_done

from isobench.cli.command import split_folders


@pytest.mark.slow
def test_a_bundles_report_goes_where_output_dir_says(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bundle = str(ROOT / "experiments" / "isobn" / "results" / "isobn_ev")
    check_done(cli("report", bundle, "output_dir=elsewhere"))
    assert [file.name for file in tmp_path.iterdir()] == ["elsewhere"]


def test_a_folder_is_told_from_a_setting():
    for text in ("bundle", "a/b", "./a=b", "../a=b", "/x/a=b", "~/a=b"):
        folders, settings = split_folders([text])
        assert ([folder.name for folder in folders], settings) == ([Path(text).name], [])
    others = ["hydra/launcher=slurm", "+experiment=x", "output_dir=a/b", "~task", "+x", "data.files={train: a=b.csv}"]
    assert split_folders(others) == ([], others)


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
