"""Mistakes on the command line and in a user's own YAML files: one line that names them, exit 2, nothing written."""

import os
import subprocess
import sys

import pytest
from helpers import ROOT, install_programs, make_config, write_parquet

from isobench.common.errors import UserError
from isobench.runs.identity import identify
from isobench.runs.validate import validate_config


def check_one_line(result, message):
    """Check exit code 2 and one line of complaint; a sweep may have said how many runs it has."""
    code, out, err = result
    assert code == 2, err
    assert "Traceback" not in err + out
    (line,) = [line for line in err.splitlines() if not line.startswith("1 run:")]
    assert line.startswith("isobench: ")
    assert message in line


# One case of each kind of mistake that is found while the command line is read.
TYPED = [
    ([], "isobench task="),
    (["taks"], "there is no command taks: did you mean tasks"),
    (["wordsim", "A", "B"], "python -m isobench_papers.too_much_in_common.convert_wordsim"),
    (["--mulitrun", "seed=1,2"], "there is no flag --mulitrun: did you mean --multirun"),
    (["--dry-run"], "write dry_run=true"),
    (["--cfg", "jbo"], "invalid choice: 'jbo'"),
    (["seed=1", "--config-dir"], "--config-dir needs a value after it"),
    (["--paper=", "tasks"], "--paper needs a value after it"),
    (["--config-dir", "/nowhere"], "--config-dir: /nowhere is no folder"),
    (["--config-dir", f"{ROOT}/conf/task"], f"--config-dir={ROOT}/conf"),
    (["task=rte", "seed"], "seed is no setting: settings are written key=value"),
    (["task=rte", ""], "an empty word is no setting"),
    (["++=3", "-m"], "++=3 has no name before the ="),
    (["seed=1)"], "seed=1) can't be read"),
    (["data.files={train:", "a.csv,", "validation:", "0.2}"], "the shell split it at a blank"),
    (['data.files={"train": "a.csv"}'], "names need no quotes"),
    (["experiment=glue_isobn", "-m"], "write +experiment=glue_isobn"),
    (["+task=rte"], "task is chosen twice"),
    (["~task=rte", "-m"], "~task=rte: a setting can't be removed"),
    (["seed=range(3,1)", "-m"], "seed=range(3,1) has no values"),
    (["hydra/launcher=slurm,auto", "-m"], "hydra/launcher=slurm,auto can't be swept over"),
    (["calibration="], "calibration is empty"),
    (["seed=null", "-m"], "seed can't be null"),
    (["data.root=${paper:isobm}"], "names no paper: did you mean isobn"),
    (["methods", "--al"], "there is no flag --al"),
    (["--config-dir", f"{ROOT}/conf", "methods", "--al"], "there is no flag --al"),
    (["hydra.run.dir=x"], "output_dir=FOLDER says where results go"),
    (["output_dir=o_${seed}"], "name one folder"),
    (["status", "--wach=3"], "there is no flag --wach: did you mean --watch"),
    (["status", "--watch", "+experiment=glue_isobn"], "write --watch after the settings"),
    (["status", "--watch", "0"], "0 must be a number of seconds above 0"),
    (["status", "experiment=glue_isobn"], "experiment=glue_isobn needs a + before it"),
    (["status", "output_dir="], "output_dir= is empty: name a folder"),
    (["report", "output_dir=s3://bucket/x"], "name a folder of this machine"),
    (["report", "output_dir=.", "experiment.selection.rule=bogus"], "experiment.selection.rule=bogus is not known"),
    (["prune", "+experiment=glue_isobn"], "which takes output_dir=FOLDER alone"),
    (["prune", "output_dir=" + "x" * 300], "file name too long: name another folder"),
    (["dashboard", "--reprot"], "there is no flag --reprot: did you mean --report"),
]
# The same for what is found while a config is composed; the slow tests try these in a sweep too.
COMPOSED = [
    (["task=rtee"], "task=rtee is not known: did you mean rte"),
    (["task.metrics=[accuracy,accuracy]"], "names one twice"),
    (["+experiment=glue_isobnn"], "experiment=glue_isobnn is not known: did you mean glue_isobn"),
    (["optimisation.lr=1"], "there is no setting optimisation"),
    (["+sed=1"], "there is no setting sed: did you mean seed"),
    (["+seed=1"], "seed is set already: write seed=..., without the +"),
    (["calibration=isobn_paper", "calibration.betta=1"], "there is no setting calibration.betta: did you mean beta"),
    (["+experiment=isobn_ev", "analysis.curv=3"], "there is no setting analysis.curv: did you mean curve"),
    (["optimization.lr=fast"], "optimization.lr=fast must be a number"),
    (["task=null"], "a group such as task or encoder can't be null"),
    (["encoder.scratch.d_model=64"], "encoder.scratch.d_model needs an encoder that starts from nothing"),
    (
        ["+optimization.optimizer.momentum=0.9"],
        "optimizer=adamw has only optimization.eps and optimization.weight_decay",
    ),
    (["optimizer=sgd", "optimization.optimizer.betas=[0.9,0.9]"], "write +optimization.optimizer.betas=..."),
    (["calibration=[none,[cosine,flow]]"], "a chain is a list of methods' names"),
    (["calibration.rescale=printed"], "calibration=isobn_paper, calibration=isobn_released has the setting"),
    (["experiment.name=../up"], "experiment.name=../up must be a name"),
]
SLOW = [
    (["task=rte", "data.root=null"], "the hub can't be reached"),
    (["scale=paper", "task=rte", "data.root=null"], "set data.root=FOLDER"),
    (["+experiment=glue_adaptation_large"], "has no grid for scale=embedded; it has one for scale=paper"),
    (["calibration=isobn_paper", "calibration.beta=abc"], "calibration=isobn_paper: beta=abc must be a number"),
    (["calibration=[none,isobn_paper]"], "none does nothing in a chain"),
    (["calibration._target_=mine.Foo"], "mine"),
    (["task.labels=[a,b,c]", "task.metrics=[accuracy]"], "has no example of c"),
    (["trainer.accelerator=gpu"], "torch sees no such device"),
    (["tracking.mode=offline"], "WANDB_MODE"),
    (["encoder.packing=false"], "isobench has no setting encoder.packing any more"),
    (["+experiment=isobn_drift", "monitors.drift.tops=[1]"], "monitors.drift.tops: did you mean top"),
    (["+experiment=isobn_drift", "+analysis.foo=3", "dry_run=true", "hydra.mode=MULTIRUN"], "analysis.foo"),
]
# Values that are valid alone and not together, or that must be names; tests/config has the bounds of single values.
INVALID = [
    (["task=rte", "data.root=/tmp", "task.folder=../x"], "task.folder=../x must be a folder below data.root"),
    (["encoder=local"], "encoder.path must be set"),
    (["encoder=gpt2", "encoder.revision=null"], "encoder.revision must be set"),
    (["data.root=/nowhere", "task=rte"], "data.root: /nowhere/glue/rte/train.parquet does not exist"),
    (["task=rte", "task.as_classes=6"], "task.as_classes is for a regression"),
    (["task=rte", "task.label_range=[0,1]"], "task.label_range is for scores, and task=rte has classes"),
    (["task=stsb", "task.label_range=[5]"], "must be .lowest, highest"),
    (["task=stsb", "task.metrics=[accuracy]", "task.primary=accuracy"], "accuracy doesn't suit this task"),
    (["task.metrics=[]"], "task.primary=accuracy must be one of task.metrics"),
    (["task.labels=[a,a]"], "must name at least two classes, each with a name of its own"),
    (["task.dev_splits=[held_out]"], "no split can be called held_out"),
    (["task.dev_splits=[validation,validation]"], "must all be different"),
    (["task.sample_seed=3"], "task.sample_seed chooses shares"),
    (["encoder.vocabulary_size=500"], "encoder.vocabulary_size is not for classification"),
    (["task=captions", "encoder=bart-scratch", "encoder.pooling=mean"], "encoder.pooling is not for generation"),
    (["experiment.selection.seeds=[1]"], "experiment.selection.seeds need experiment.selection.rule=seeds"),
    (["experiment.selection.rule=held_out"], "rule=held_out needs runs with task.held_out"),
    (["+experiment=glue_calibration", "experiment.tables=[table9]"], "isotropy_calibration has no table9"),
    (["+calibration.then=foo"], "calibration.then=foo must be a method's settings"),
    (["+calibration.dim=5"], "calibration.dim can't be set"),
    (["+monitors.x=3"], "monitors.x must name a callback"),
]


@pytest.mark.parametrize(("arguments", "message"), TYPED, ids=lambda case: str(case)[:60])
def test_what_is_typed_wrong_is_one_line(cli, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    check_one_line(cli(*arguments), message)
    assert list(tmp_path.iterdir()) == []


def list_runs_and_sweeps():
    for arguments, message in COMPOSED + SLOW:
        slow = [pytest.mark.slow] if (arguments, message) in SLOW else []
        yield pytest.param(arguments, message, id=" ".join(arguments), marks=slow)
        yield pytest.param([*arguments, "-m"], message, id=" ".join(arguments) + " -m", marks=pytest.mark.slow)


@pytest.mark.parametrize(("arguments", "message"), list_runs_and_sweeps())
def test_a_run_or_sweep_that_cant_be_is_one_line(cli, tmp_path, arguments, message):
    if "trainer.accelerator=gpu" in arguments and pytest.importorskip("torch").cuda.is_available():
        pytest.skip("there is a GPU")
    output = tmp_path / "outputs"
    check_one_line(cli(f"output_dir={output}", "tracking=none", *arguments), message)
    assert not output.exists()


def check_config(cfg):
    """Check what a run needs before it starts: its settings, then its data and weights."""
    validate_config(cfg)
    identify(cfg)


@pytest.mark.parametrize(("settings", "message"), INVALID, ids=lambda case: str(case)[:60])
def test_an_invalid_config_names_the_setting(tmp_path, settings, message):
    cfg = make_config("tracking=none", f"data.cache={tmp_path}", *settings)
    with pytest.raises(UserError, match=message) as error:
        check_config(cfg)
    assert "\n" not in str(error.value)


def write_own(folder, group, content):
    """Write a YAML file of a user's own: FOLDER/GROUP/own.yaml."""
    file = folder / group / "own.yaml"
    file.parent.mkdir()
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"name: [a\n", "line 2: "),
        (b"name: own\ntext: [a]\nname: other\n", "line 3: found duplicate key name"),
        (b"name: own\n\ttext: [a]\n", "line 2: found character"),
        ("name: caf\N{LATIN SMALL LETTER E WITH ACUTE}\n".encode("latin-1"), "can't be read as UTF-8"),
    ],
)
def test_a_broken_yaml_file_is_named(cli, tmp_path, content, message):
    file = write_own(tmp_path, "task", content)
    check_one_line(cli("-cd", str(tmp_path), "task=own"), str(file))
    check_one_line(cli("status", f"--config-dir={tmp_path}", "task=own"), message)


OWN_METHOD = """\
name: own
_target_: isobench.calibration.Calibration
version: 1
placement: after_pooler
target: head
vigour: 0.5
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["calibration=none,own", "calibration.vigor=1", "-m"], "did you mean vigour?"),
        (["calibration=[isobn_paper,own]", "calibration.then.vigor=1"], "did you mean vigour?"),
        (["calibration.vigour=1"], "only calibration=own has the setting calibration.vigour"),
    ],
)
def test_settings_of_a_method_of_the_users_own_are_suggested(cli, tmp_path, arguments, message):
    write_own(tmp_path, "calibration", OWN_METHOD)
    check_one_line(cli("--config-dir", str(tmp_path), *arguments), message)


EXPERIMENT = """# @package _global_
experiment: {name: own, grid: {embedded: [{calibration: [none]}]}}
hydra: {mode: MULTIRUN}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("# @package _global_", "", "must begin with the line # @package _global_"),
        ("[none]", "[]", "experiment.grid: calibration has no values"),
        ("calibration: [none]", "++hydra.launcher.n_jobs: [2]", "holds for the whole sweep"),
        ("calibration: [none]", "experiment.paper: [isobn]", "experiment.paper holds for the whole sweep"),
        ("[{calibration: [none]}]", "[]", "experiment.grid.embedded is empty: list its sub-grids"),
        ("{embedded: [{calibration: [none]}]}", "[a]", "experiment/own"),
        ("name: own", "paper: isobnn", "experiment.paper=isobnn is not known: did you mean isobn"),
        ("name: own", "tables: [table1]", "experiment.tables needs a paper"),
    ],
)
def test_a_mistake_in_an_experiments_yaml_is_one_line(cli, tmp_path, old, new, message):
    write_own(tmp_path, "experiment", EXPERIMENT.replace(old, new))
    check_one_line(cli("--config-dir", str(tmp_path), "+experiment=own", "tracking=none", "dry_run=true"), message)


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["output_dir", "data.root", "encoder.path", "data.cache"])
def test_a_file_in_place_of_a_folder_is_named(cli, small, tmp_path, setting):
    file = tmp_path / "file"
    file.write_text("")
    check_one_line(cli(*small, f"{setting}={file}"), str(file))
    if setting != "data.cache":
        check_one_line(cli(*small, f"{setting}={file}", "dry_run=true"), str(file))


@pytest.mark.parametrize("command_name", ["status", "report", "prune"])
def test_a_commands_output_folder_is_no_file(cli, tmp_path, command_name):
    (tmp_path / "file").write_text("")
    message = f"output_dir={tmp_path}/file is a file: name a folder"
    check_one_line(cli(command_name, f"output_dir={tmp_path}/file"), message)


@pytest.mark.slow
def test_what_a_data_folder_has_instead_is_named(cli, small, tmp_path):
    folder = tmp_path / "data" / "glue" / "sst2"
    folder.mkdir(parents=True)
    arguments = [*small, f"data.root={tmp_path}/data"]
    check_one_line(cli(*arguments), "its folder has nothing")
    write_parquet(folder / "dev.parquet", {"sentence": ["good"], "label": [1]})
    check_one_line(cli(*arguments), "its folder has dev.parquet")
    for split in ("train", "validation"):
        write_parquet(folder / f"{split}.parquet", {"sentence": ["good", "bad"], "label": [0, 7]})
    check_one_line(cli(*arguments), "1 labels that are no numbers from 0 to 1")
    assert not (tmp_path / "outputs").exists()


ABSENT = """\
sbatch: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host
sbatch: error: _establish_config_source: failed to fetch config
sbatch: fatal: Could not establish a configuration source
"""


@pytest.mark.slow
def test_an_absent_slurm_is_one_line(cli, small, outputs, tmp_path, monkeypatch):
    """Programs of SLURM are installed, and no controller answers them."""
    script = f"cat >&2 <<'END'\n{ABSENT}END\nexit 1"
    install_programs(monkeypatch, tmp_path / "bin", dict.fromkeys(("srun", "sbatch", "scontrol"), script))
    check_one_line(cli(*small, "hydra/launcher=slurm", "-m"), "SLURM does not answer here (sbatch: fatal: Could not")
    assert not outputs.exists()


def test_circumstances_in_which_nothing_works_are_one_line(cli, tmp_path, monkeypatch):
    check_one_line(cli("output_dir=/tmp/\udce4"), "set PYTHONUTF8=1")
    with monkeypatch.context() as changed:
        changed.setattr("time.time", lambda: -1.0)
        check_one_line(cli("task=rte"), "clock")
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    check_one_line(cli("task=rte"), "the current folder does not exist any more")
    check_one_line(cli("--help"), "the current folder does not exist any more")


@pytest.mark.parametrize(("word", "code"), [("papers", 0), ("status", 2)])
def test_a_command_works_with_all_streams_closed(tmp_path, word, code):
    line = '"$0" -m isobench "$1" <&- >&- 2>&-'
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["sh", "-c", line, sys.executable, word], cwd=tmp_path, env=environment, check=False)
    assert done.returncode == code
