"""The package as a wheel, installed elsewhere; and the house rules."""

import subprocess
import sys
import zipfile
from functools import partial

import pytest
from helpers import ROOT


@pytest.mark.slow
def test_a_wheel_carries_its_configs_and_works_elsewhere(tmp_path, tiny, reviews):
    pip, run = [sys.executable, "-m", "pip"], partial(subprocess.run, capture_output=True, text=True)
    run([*pip, "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(ROOT)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    carried = "isobench/conf/config.yaml isobench/experiments/isobn/published.yaml isobench_papers.py "
    carried += "isobench/py.typed hydra_plugins/isobench.py isobench/report/output/templates/page.html.j2"
    assert set(carried.split()) <= set(names)
    assert not any("/results/" in name for name in names)  # bundles of runs: megabytes that no command reads
    site = tmp_path / "site"
    run([*pip, "install", "-q", "--no-deps", "--target", str(site), str(wheel)], check=True)
    work = tmp_path / "work"
    work.mkdir()
    code = f"import sys; sys.path.insert(0, {str(site)!r}); import isobench; print(isobench.__file__)\n"
    code += "from isobench.__main__ import main; main()"
    arguments = [
        "task=sst2", f"data.root={reviews}", "data.cache=cache", "encoder=local", f"encoder.path={tiny}",
        "tracking=none", "-m", "seed=1,2", "+experiment=glue_isobn", "calibration=none", "task.train_samples=64",
    ]  # fmt: skip
    done = run([sys.executable, "-c", code, *arguments], cwd=work, check=False)
    assert done.returncode == 0, done.stderr
    assert str(site) in done.stdout.splitlines()[0]
    assert len(list(work.glob("outputs/runs/*/result.json"))) == 2
    sixth = ["--paper", str(ROOT / "examples" / "paper"), "+experiment=greetings", "data.cache=cache", "seed=1"]
    sixth += ["encoder=local", f"encoder.path={tiny}", "optimization.epochs=1"]
    done = run([sys.executable, "-c", code, *sixth], cwd=work, check=False)
    assert done.returncode == 0, done.stderr
    assert len(list(work.glob("outputs/runs/*/result.json"))) == 4
