"""Check that what was submitted stays known, and that a job carries out exactly the run that was submitted."""

import signal
from dataclasses import replace

import pytest
from helpers import install_programs, make_config
from submitit.helpers import DelayedSubmission

from isobench.common.interruption import STOP_SIGNALS, handle_signals, raise_interrupted
from isobench.runs.identity import identify
from isobench.sweep.slurm import Worker, requeue_or_exit


@pytest.fixture
def submitted(tmp_path):
    cfg = make_config("tracking=none", f"output_dir={tmp_path}/outputs")
    return cfg, identify(cfg).key


def test_a_job_whose_run_has_another_key_now_refuses_it(submitted, tmp_path, capsys):
    """Change a run's key after submission, as a damaged job file or changed data or weights would."""
    cfg, key = submitted
    changed = replace(cfg, optimization=replace(cfg.optimization, lr=cfg.optimization.lr * 2))
    assert Worker([(changed, key)])._execute_share(0, 1) == [2]
    assert "have changed since it was planned" in capsys.readouterr().err
    assert not (tmp_path / "outputs").exists()


@pytest.fixture
def handled_signals():
    """Install handlers as in a job, where every signal interrupts the work."""
    with handle_signals(raise_interrupted, *STOP_SIGNALS):
        yield


@pytest.mark.usefixtures("handled_signals")
@pytest.mark.parametrize("later", STOP_SIGNALS)
def test_a_signal_while_a_job_is_requeued_does_not_stop_the_requeue(later):
    steps = []

    def requeue(signum, frame):
        steps.append("asked")
        signal.raise_signal(later)
        steps.append("requeued")
        raise SystemExit(255)

    signal.signal(signal.SIGUSR2, requeue)
    with pytest.raises(SystemExit):
        requeue_or_exit(signal.SIGUSR2, None)
    assert steps == ["asked", "requeued"]


SBATCH = """\
echo >> {calls}
case $(wc -l < {calls}) in
    2) echo "sbatch: error: QOSMaxSubmitJobPerUserLimit" >&2; exit 1 ;;
    *) echo "Submitted batch job $(wc -l < {calls})" ;;
esac
"""


def test_the_first_array_stays_when_the_second_is_refused(cli, small, outputs, tmp_path, monkeypatch):
    """The user learns what was submitted, its runs count as queued and have their jobs, and the rest can follow."""
    scripts = {
        "srun": "",
        "scontrol": "echo MaxArraySize = 3",
        "squeue": "printf '1_0\\n1_1\\n'",
        "sbatch": SBATCH.format(calls=tmp_path / "calls"),
    }
    install_programs(monkeypatch, tmp_path / "bin", scripts)
    sweep = [*small, "hydra/launcher=slurm", "seed=1,2,3,4,5", "-m"]
    code, _, err = cli(*sweep)
    assert code == 2
    (line,) = [line for line in err.splitlines() if "runs:" not in line]
    assert "2 of 5 runs are submitted, in slurm job 1; " in line
    assert "QOSMaxSubmitJobPerUserLimit" in line
    jobs = [
        DelayedSubmission.load(outputs.joinpath(file)) for file in sorted(outputs.glob("jobs/*/1_?_submitted.pkl"))
    ]
    assert [job.function.runs[0][0].seed for job in jobs] == [1, 2]
    assert "2 running or queued, 3 to do" in cli(*sweep, "dry_run=false")[2]
    assert {file.name for file in outputs.glob("jobs/slurm-*.json")} == {
        "slurm-1.json",
        "slurm-3.json",
        "slurm-4.json",
    }
