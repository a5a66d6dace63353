"""The package as a wheel, installed elsewhere; and the house rules."""

import subprocess
import sys
import zipfile

import pytest
from helpers import ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


@pytest.mark.slow
def test_a_wheel_carries_its_configs_and_works_elsewhere(wheel, tmp_path, tiny, reviews):
    names = zipfile.ZipFile(wheel).namelist()
    assert "isobench/conf/config.yaml" in names
    assert {"isobench/experiments/isobn/published.yaml", "isobench_papers.py"} <= set(names)
    assert "hydra_plugins/isobench.py" in names
    assert "isobench/py.typed" in names
    assert "isobench/report/output/templates/page.html.j2" in names
    assert not any("/results/" in name for name in names)  # bundles of runs: megabytes that no command reads
    site = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(site), str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    work = tmp_path / "work"
    work.mkdir()
    code = f"import sys; sys.path.insert(0, {str(site)!r}); import isobench; print(isobench.__file__)\n"
    code += "from isobench.__main__ import main; main()"
    arguments = [
        "task=sst2", f"data.root={reviews}", "data.cache=cache", "encoder=local", f"encoder.path={tiny}",
        "tracking=none", "-m", "seed=1,2", "+experiment=glue_isobn", "calibration=none", "task.train_samples=64",
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=work, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert str(site) in done.stdout.splitlines()[0]
    assert len(list(work.glob("outputs/runs/*/result.json"))) == 2
    sixth = ["--paper", str(ROOT / "examples" / "paper"), "+experiment=greetings", "data.cache=cache", "seed=1"]
    sixth += ["encoder=local", f"encoder.path={tiny}", "optimization.epochs=1"]
    done = subprocess.run([sys.executable, "-c", code, *sixth], cwd=work, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(list(work.glob("outputs/runs/*/result.json"))) == 4
