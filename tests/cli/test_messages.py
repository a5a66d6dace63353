"""Mistakes on the command line and in a user's own YAML files: one line that names them, exit code 2."""

import pytest
from helpers import ROOT, write_parquet

from isobench.cli import dashboard, prune, report, status
from isobench.sweep.slurm import explain_refusal

# Arguments of isobench, and what its one line says.
FORMS = [
    (["experiment=glue_isobn"], "experiment=glue_isobn needs a + before it: write +experiment=glue_isobn"),
    (["experiment=glue_isobn", "-m"], "experiment=glue_isobn needs a + before it: write +experiment=glue_isobn"),
    (["+task=rte"], "task is chosen twice: choose one option"),
    (["seed=1,2"], "seed=1,2 has several values: add -m to carry out a run for each"),
    (["seed=range(1,3)"], "seed=range(1,3) has several values: add -m"),
    (["seed=range(3,1)", "-m"], "seed=range(3,1) has no values: write some, such as seed=A,B"),
    (["calibration=glob(zzz*)", "-m"], "calibration=glob(zzz*) has no values"),
    (["hydra/launcher=slurm,auto", "-m"], "hydra/launcher=slurm,auto can't be swept over"),
    (["hydra.launcher.n_jobs=0"], "there is no setting hydra.launcher.n_jobs: "),
    (["~seed"], "~seed: a setting can't be removed: leave it out, or give it a value (seed=...)"),
    (["~task=rte", "-m"], "~task=rte: a setting can't be removed"),
    (["seed=range(1,3,0)", "-m"], "seed=range(1,3,0): range() arg 3 must not be zero: write range(FIRST,END,STEP)"),
    (["calibration="], "calibration is empty: choose one of its options"),
    (["seed=null"], "seed can't be null: give it a value"),
    (["seed=null", "-m"], "seed can't be null: give it a value"),
    (["seed="], "seed= must be a whole number"),
    (["task=rte", "seed"], "seed is no setting: settings are written key=value"),
    (["task=rte", ""], "an empty word is no setting"),
    (["seed=1)"], "seed=1) can't be read"),
    (["task.text={a"], "task.text={a can't be read"),
    (['data.files={"train": "a.csv"}'], "names need no quotes, values with special characters do"),
    (["encoder.path=~nosuchuser/x"], "~nosuchuser/x: there is no home folder of ~nosuchuser"),
    (["statsu"], "there is no command statsu: did you mean status"),
    (["--mulitrun", "seed=1,2"], "there is no flag --mulitrun: did you mean --multirun"),
    (["seed=1", "--config-dir"], "--config-dir needs a value after it"),
    (["--dry-run"], "--dry-run is a setting, not a flag: write dry_run=true"),
    (["data.root=${paper:isobm}"], "${paper:isobm} names no paper: did you mean isobn"),
    (["--config-dir", f"{ROOT}/conf/task"], f"--config-dir={ROOT}/conf"),
    (["--cfg", "jbo"], "argument --cfg/-c: invalid choice: 'jbo'"),
    (["--config-dir", "/nowhere"], "--config-dir: /nowhere is no folder"),
    (["=3"], "=3 has no name before the =: settings are written key=value"),
    (["++=3", "-m"], "++=3 has no name before the ="),
    (["~=3"], "~=3 has no name before the ="),
]
# A command's module, its arguments, and what its one line says.
COMMAND_FORMS = [
    (status, ["--wach"], "there is no flag --wach: did you mean --watch"),
    (status, ["+experiment=glue_isobn", "--wach=3"], "there is no flag --wach: did you mean --watch"),
    (status, ["--watch", "+experiment=glue_isobn"], "to leave the number out, write --watch after the settings"),
    (status, ["--watch", "0"], "0 must be a number of seconds above 0"),
    (status, ["--watch=nan"], "nan must be a number of seconds above 0"),
    (status, ["experiment=glue_isobn"], "experiment=glue_isobn needs a + before it"),
    (status, ["--config-dir", "/nowhere"], "--config-dir: /nowhere is no folder"),
    (status, ["--config-dir"], "--config-dir needs a value after it"),
    (status, ["output_dir="], "output_dir= is empty: name a folder"),
    (report, ["output_dir=.", "experiment.selection.rule=bogus"], "experiment.selection.rule=bogus is not known"),
    (report, ["output_dir=s3://bucket/x"], "output_dir=s3://bucket/x is an address: name a folder of this machine"),
    (prune, ["+experiment=glue_isobn"], "prune takes output_dir=FOLDER alone"),
    (prune, ["+experiment=nothing"], "prune takes output_dir=FOLDER alone"),
    (prune, ["output_dir=" + "x" * 300], "file name too long: name another folder"),
    (status, ["glue_isobn"], "glue_isobn is no setting: settings are written key=value"),
    (status, ["=3"], "=3 has no name before the ="),
    (report, ["--multrun"], "there is no flag --multrun: did you mean --multirun"),
    (report, ["+experiment=glue_isobn", "seed=range(3,1)"], "seed=range(3,1) has no values"),
    (dashboard, ["--reprot"], "there is no flag --reprot: did you mean --report"),
    (prune, ["--yse"], "there is no flag --yse: did you mean --yes"),
]


def check_one_line(result, message):
    code, out, err = result
    assert code == 2, err
    assert "Traceback" not in err + out
    assert err.count("\n") == 1, err
    assert err.startswith("isobench: ")
    assert message in err


@pytest.mark.parametrize(("arguments", "message"), FORMS, ids=lambda case: str(case)[:60])
def test_a_mistake_in_the_form_is_one_line(cli, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    check_one_line(cli(*arguments), message)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("module", "arguments", "message"), COMMAND_FORMS, ids=lambda case: str(case)[:60])
def test_a_mistake_in_a_commands_form_is_one_line(command, tmp_path, monkeypatch, module, arguments, message):
    monkeypatch.chdir(tmp_path)
    check_one_line(command(module.main, *arguments), message)


@pytest.mark.parametrize("flag", ["--config-dir", "-cd"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"name: [a\n", "line 2: "),
        (b"name: yours\ntext: [a]\nname: other\n", "line 3: found duplicate key name"),
        (b"name: yours\n\ttext: [a]\n", "line 2: found character"),
        ("name: caf\N{LATIN SMALL LETTER E WITH ACUTE}\n".encode("latin-1"), "can't be read as UTF-8"),
        (b"name: a\x07\n", "has a character that YAML does not allow"),
    ],
)
def test_a_broken_yaml_file_is_named(cli, command, tmp_path, content, message, flag):
    file = tmp_path / "task" / "yours.yaml"
    file.parent.mkdir()
    file.write_bytes(content)
    check_one_line(cli(flag, str(tmp_path), "task=yours"), str(file))
    check_one_line(command(status.main, f"{flag}={tmp_path}", "task=yours"), message)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "task.name must be set: add task.name=..."),
        (b"- a\n", "In 'task/yours': ValidationError raised while composing config: "),
        (b"nme: a\n", "there is no setting task.nme: did you mean name"),
        (b"defaults: [nope]\n", "In 'task/yours': Could not load 'task/nope'"),
    ],
)
def test_a_yaml_file_of_another_content_is_explained(cli, tmp_path, content, message):
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "yours.yaml").write_bytes(content)
    check_one_line(cli("--config-dir", str(tmp_path), "task=yours"), message.replace("FOLDER", str(tmp_path)))


OWN_METHOD = """\
name: mine
_target_: isobench.calibration.Calibration
version: 1
placement: after_pooler
target: head
vigour: 0.5
"""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["calibration=mine", "calibration.vigor=1"],
            "there is no setting calibration.vigor: did you mean vigour?",
        ),
        (["calibration=mine", "calibration.betta=1"], "there is no setting calibration.betta: "),
        (["calibration=none,mine", "calibration.vigor=1", "-m"], "did you mean vigour?"),
        (["calibration=[isobn_paper,mine]", "calibration.then.vigor=1"], "did you mean vigour?"),
        (["calibration.vigour=1"], "only calibration=mine has the setting calibration.vigour"),
    ],
)
def test_settings_of_a_method_of_the_users_own_are_suggested(cli, tmp_path, arguments, message):
    (tmp_path / "calibration").mkdir()
    (tmp_path / "calibration" / "mine.yaml").write_text(OWN_METHOD)
    result = cli("--config-dir", str(tmp_path), *arguments)
    check_one_line(result, message)
    if "calibration.betta=1" in arguments:
        assert "beta?" not in result[2]  # which other methods have


EXPERIMENT = """# @package _global_
experiment: {name: own, grid: {embedded: [{calibration: [none]}]}}
hydra: {mode: MULTIRUN}
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("# @package _global_", "", "the YAML of an experiment must begin with the line # @package _global_"),
        ("[none]", "[]", "experiment.grid: calibration has no values: write some"),
        (
            "calibration: [none]",
            "hydra.launcher.n_jobs: [2]",
            "grid: hydra.launcher.n_jobs holds for the whole sweep",
        ),
        ("calibration: [none]", "++hydra.launcher.n_jobs: [2]", "holds for the whole sweep"),
        ("calibration: [none]", "experiment.paper: [isobn]", "grid: experiment.paper holds for the whole sweep"),
        ("calibration: [none]", "retry_failed: [true]", "grid: retry_failed holds for the whole sweep"),
        ("[{calibration: [none]}]", "[]", "experiment.grid.embedded is empty: list its sub-grids"),
        ("name: own", "paper: isobnn", "experiment.paper=isobnn is not known: did you mean isobn"),
        ("name: own", "tables: [table1]", "experiment.tables needs a paper: set experiment.paper=NAME"),
        ("{embedded: [{calibration: [none]}]}", "[a]", "experiment/own"),
    ],
)
def test_a_mistake_in_an_experiments_yaml_is_one_line(cli, small, tmp_path, old, new, message):
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    (tmp_path / "conf" / "experiment" / "own.yaml").write_text(EXPERIMENT.replace(old, new))
    check_one_line(cli("--config-dir", f"{tmp_path}/conf", "+experiment=own", *small, "dry_run=true"), message)


@pytest.mark.parametrize("setting", ["output_dir", "data.root", "encoder.path", "data.cache"])
def test_a_file_in_place_of_a_folder_is_named(cli, small, tmp_path, setting):
    file = tmp_path / "file"
    file.write_text("")
    check_one_line(cli(*small, f"{setting}={file}"), str(file))
    if setting != "data.cache":
        check_one_line(cli(*small, f"{setting}={file}", "dry_run=true"), f"{setting}={file} is a file: name a folder")


@pytest.mark.parametrize("module", [status, report, prune])
def test_a_commands_output_folder_is_no_file(command, tmp_path, module):
    (tmp_path / "file").write_text("")
    message = f"output_dir={tmp_path}/file is a file: name a folder"
    check_one_line(command(module.main, f"output_dir={tmp_path}/file"), message)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["train.csv", "validation.csv"], "the folder has train.csv, validation.csv: convert each split to a file"),
        ([], "the folder is empty: convert each split to a file SPLIT.parquet"),
    ],
)
def test_files_beside_a_missing_parquet_file_are_named(cli, small, tmp_path, files, message):
    folder = tmp_path / "data" / "glue" / "sst2"
    folder.mkdir(parents=True)
    for name in files:
        (folder / name).write_text("sentence,label\ngood,1\n")
    check_one_line(cli(*small, f"data.root={tmp_path}/data"), message)


def test_another_split_is_named(cli, small, tmp_path):
    write_parquet(tmp_path / "glue" / "sst2" / "dev.parquet", {"sentence": ["good"], "label": [1]})
    check_one_line(cli(*small, f"data.root={tmp_path}"), "the folder has: dev (choose with task.train_split=...)")


ABSENT = """\
sbatch: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host
sbatch: error: fetch_config: DNS SRV lookup failed
sbatch: error: _establish_config_source: failed to fetch config
sbatch: fatal: Could not establish a configuration source
"""


def test_an_absent_slurm_is_one_line(cli, small, outputs, tmp_path, monkeypatch):
    """Programs of SLURM are installed, and no controller answers them."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("srun", "sbatch", "scontrol"):
        (programs / name).write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{ABSENT}END\nexit 1\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    code, out, err = cli(*small, "hydra/launcher=slurm", "-m")
    assert (code, out) == (2, "")
    complaints = [line for line in err.splitlines() if not line.startswith("1 runs:")]
    assert complaints == [
        "isobench: hydra/launcher=slurm: SLURM does not answer here (sbatch: fatal: Could not establish a "
        "configuration source): submit from a machine of the cluster where sinfo works"
    ]
    assert not outputs.exists()


def test_another_refusal_of_slurm_is_its_own_first_line():
    error = RuntimeError("sbatch: error: invalid partition specified: no\nsbatch: error: Batch job submission failed")
    assert explain_refusal(error) == "sbatch: error: invalid partition specified: no"
