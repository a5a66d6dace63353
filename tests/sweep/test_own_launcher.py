"""A launcher of the user's own, in a folder of configs."""

import pytest
from helpers import check_done, check_refused

LAUNCHER = """
from isobench.sweep.launchers import Launcher

class Backwards(Launcher):
    def __init__(self, note):
        self.note = note

    def launch(self, todo, runs, plan):
        print(self.note)
        return super().launch(todo[::-1], runs, plan)

class Other:
    pass
"""


@pytest.mark.slow
def test_a_subclass_of_the_launcher_carries_out_runs(cli, small, outputs, tmp_path, monkeypatch):
    (tmp_path / "my_own_launcher.py").write_text(LAUNCHER)
    monkeypatch.syspath_prepend(str(tmp_path))
    group = tmp_path / "conf" / "hydra" / "launcher"
    group.mkdir(parents=True)
    own = [
        *small,
        "--config-dir",
        f"{tmp_path}/conf",
        "hydra/launcher=mine",
        "-m",
        "seed=1,2",
        "optimization.epochs=1",
    ]
    for target in ("my_own_launcher.Other", "my_own_launcher.Missing", "nowhere.Launcher"):
        (group / "mine.yaml").write_text(f"_target_: {target}\n")
        check_refused(cli(*own), target)
    assert not outputs.exists()
    (group / "mine.yaml").write_text("_target_: my_own_launcher.Backwards\nnote: backwards\n")
    out, err = check_done(cli(*own))
    assert "backwards" in out
    assert err.index("seed 2") < err.index("seed 1")
    assert len(list(outputs.glob("runs/*/result.json"))) == 2
