"""What W&B is given: every documented name, read back from a real run's log."""

import json
import struct
import subprocess
import zlib
from dataclasses import asdict

import numpy as np
import pytest
import wandb
from helpers import files_with, tiny_overrides, train_run
from pytorch_lightning.callbacks import Callback
from wandb.proto.wandb_internal_pb2 import Record
from wandb.sdk import wandb_setup

from isobench.training import tracking
from isobench.training.callbacks import Stopwatch
from isobench.training.monitor import IsotropyMonitor

KEY = "0123456789abcdef0123456789abcdef01234567"
SECRETS = {"WANDB_API_KEY": KEY, "HF_TOKEN": "hf_verysecret", "SLURM_JWT": "slurmsecret", "SLURM_JOB_ID": "7"}
REMOTE = "https://ghp_alsosecret:x-oauth-basic@example.com/someone/else.git"
HEADER = struct.Struct("<4sHB")  # of the file: identifier, magic number, version
CHUNK = struct.Struct("<IHB")  # of a chunk: checksum, length, type
BLOCK, LAST_CHUNKS = 32768, (1, 4)  # types of the chunks that end a message
EPOCHS, BATCHES = 3, 10


class Norms(Callback):
    """The gradient's norm at every step, in double precision."""

    seen: list[float] = []  # noqa: RUF012

    def on_before_optimizer_step(self, trainer, module, optimizer):
        squares = [p.grad.double().square().sum() for p in module.parameters() if p.grad is not None]
        self.seen.append(float(sum(squares)) ** 0.5)


def run(overrides):
    record, _, cfg = train_run(*overrides)
    return record, cfg


def read_messages(data):
    """Yield the messages of a transaction log, a LevelDB log, each joined from its chunks."""
    assert HEADER.unpack_from(data)[0] == b":W&B"
    position, content = HEADER.size, b""
    while position + CHUNK.size <= len(data):
        if (left := BLOCK - position % BLOCK) < CHUNK.size:  # a block's end, too short for a chunk
            position += left
            continue
        checksum, length, kind = CHUNK.unpack_from(data, position)
        position += CHUNK.size + length
        chunk = data[position - length : position]
        assert zlib.crc32(chunk, zlib.crc32(bytes([kind]))) == checksum
        content += chunk
        if kind in LAST_CHUNKS:
            yield Record.FromString(content)
            content = b""


class Log:
    """What a run logged: its config, rows of history in order, its last summary, and how it ended."""

    def __init__(self, outputs):
        (file,) = outputs.glob("wandb/offline-run-*/run-*.wandb")
        self.config, self.history, self.summary = {}, [], {}
        for message in read_messages(file.read_bytes()):
            match message.WhichOneof("record_type"):
                case "history":
                    self.history.append(read_items(message.history.item))
                case "summary":
                    self.summary |= read_items(message.summary.update)
                case "config":
                    self.config |= read_items(message.config.update)
                case "run":
                    self.run = message.run
                    self.config |= read_items(message.run.config.update)
                case "exit":
                    self.exit_code = message.exit.exit_code

    def curve(self, name):
        return [row[name] for row in self.history if name in row]


def read_items(items):
    return {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items}


@pytest.fixture(scope="module")
def offline(tiny, reviews, cache, tmp_path_factory):
    """A run with W&B offline, in a checkout and an environment with secrets: its record, config, log and folder."""
    repository = tmp_path_factory.mktemp("offline")
    outputs = repository / "outputs"
    settings = ["tracking=wandb", f"optimization.epochs={EPOCHS}", "calibration=isobn_paper"]
    settings += ["optimization.clip=0.5", "+monitors.norms={_target_: test_tracking.Norms}", "experiment.name=mine"]
    Norms.seen.clear()
    author = ["-c", "user.name=me", "-c", "user.email=me@example.com"]
    for command in (
        ["init"],
        ["remote", "add", "origin", REMOTE],
        [*author, "commit", "--allow-empty", "-m", "first"],
    ):
        subprocess.run(["git", *command], cwd=repository, check=True, capture_output=True)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SECRETS.items():
            patch.setenv(name, value)
        record, cfg = run([*tiny_overrides(tiny, reviews, cache, outputs), *settings])
    assert record["status"] == "finished"
    return record, cfg, Log(outputs), outputs


@pytest.mark.slow
def test_training_curves(offline):
    record, cfg, log, _ = offline
    steps = EPOCHS * BATCHES
    assert log.curve("train/loss")[-1] < log.curve("train/loss")[0]
    assert len(log.curve("train/loss")) == steps  # a short run: every step
    warm = np.ceil(cfg.optimization.warmup * steps)
    factor = [step / warm if step < warm else (steps - step) / (steps - warm) for step in range(steps)]
    np.testing.assert_allclose(log.curve("train/lr"), cfg.optimization.lr * np.array(factor), rtol=1e-6)
    np.testing.assert_allclose(log.curve("train/gradient_norm"), Norms.seen, rtol=1e-5)
    assert max(Norms.seen) > cfg.optimization.clip
    speeds = log.curve("train/examples_per_second")
    assert len(speeds) == EPOCHS
    assert sum(160 / speed for speed in speeds) == pytest.approx(record["cost"]["training_seconds"], abs=2e-3)
    tokens = np.array(log.curve("train/tokens_per_second")) / speeds
    assert tokens == pytest.approx(tokens[0])
    whole = record["cost"]["tokens_per_second"] * record["cost"]["training_seconds"] / record["cost"]["examples"]
    assert tokens[0] == pytest.approx(whole, rel=1e-2)
    x = [row["trainer/global_step"] for row in log.history if "train/loss" in row]
    assert x == list(range(steps))


@pytest.mark.slow
def test_curves_of_the_epochs_are_the_records(offline):
    record, _, log, _ = offline
    history = record["history"]
    assert log.curve("dev/accuracy") == pytest.approx([epoch["score"] for epoch in history])
    assert log.curve("dev/validation/accuracy") == log.curve("dev/accuracy")
    for name in history[0]["isotropy"]:
        found = log.curve(f"isotropy/{name}")
        of_two_rows = name.startswith(("head/ev", "head/isoscore", "head/effective_rank"))
        expected = [record["isotropy_before"][name], *(epoch["isotropy"][name] for epoch in history)]
        assert found == ([] if of_two_rows else pytest.approx(expected, rel=1e-5)), name
    start = [row["trainer/global_step"] for row in log.history if "isotropy/embedding/ev1" in row]
    assert start == [0, *(epoch["step"] - 1 for epoch in history)]
    for matrix in ("embedding", "vocabulary"):
        ev = np.array([log.curve(f"isotropy/{matrix}/ev{k}") for k in (1, 2, 3, 5, 10, 20)])
        assert ev.shape == (6, EPOCHS + 1)
        assert 0 < ev.min() <= ev.max() <= 1 + 1e-6
        assert (np.diff(ev, axis=0) >= -1e-6).all()
        for measure in ("i1", "i2"):
            assert all(value > 0 for value in log.curve(f"isotropy/{matrix}/{measure}"))


@pytest.mark.slow
@pytest.mark.parametrize("matrix", ["embedding", "vocabulary"])
def test_the_ev_curve_of_every_epoch_is_a_line_of_the_chart(offline, matrix):
    record, _, log, outputs = offline
    name = f"isotropy/{matrix}/ev_curve_table"
    (path,) = {row[f"{name}.path"] for row in log.history[-2:] if f"{name}.path" in row}
    (file,) = outputs.glob(f"wandb/offline-run-*/files/{path}")
    table = json.loads(file.read_text())
    assert table["columns"] == ["step", "lineKey", "lineVal"]
    for number, epoch in enumerate(record["history"], 1):
        line = [(k, value) for k, key, value in table["data"] if key == f"epoch {number}"]
        assert line == [(k, value) for k, value in enumerate(epoch["explained_variance"][matrix], 1)]
    assert len(log.curve(f"{name}.path")) == EPOCHS


@pytest.mark.slow
def test_the_summary_is_the_records(offline):
    record, _, log, _ = offline
    best = record["best"]
    assert log.summary["status"] == "finished"
    assert log.summary["failure"] is None
    assert log.exit_code == 0
    assert (log.summary["best/score"], log.summary["best/epoch"]) == (best["score"], best["epoch"])
    assert log.summary["best/step"] == best["epoch"] * BATCHES
    assert log.summary["best/validation/accuracy"] == best["validation"]["accuracy"]
    isotropy = {name.removeprefix("best/isotropy/"): v for name, v in log.summary.items() if "best/isotropy" in name}
    assert isotropy == pytest.approx(best["isotropy"])


@pytest.mark.slow
def test_the_config_and_the_place(offline):
    record, cfg, log, _ = offline
    resolved = {name: value for name, value in log.config.items() if not name.startswith("_wandb")}
    assert (resolved.pop("method"), resolved.pop("key")) == ("isobn_paper", record["key"])
    assert resolved.pop("encoder_label") == f"local ({record['config']['encoder']['path']})"
    origin = resolved.pop("provenance")
    assert origin["versions"] == record["provenance"]["versions"]
    assert resolved == asdict(cfg)
    assert (log.run.run_id, log.run.run_group, log.run.job_type) == (record["key"][:16], "mine", "sst2")
    assert log.run.display_name == "sst2-local-isobn_paper-1"
    assert set(log.run.tags) == {"embedded", "isobn_paper"}


@pytest.mark.slow
def test_no_secret_is_written(offline):
    _, _, _, outputs = offline
    secrets = [value for name, value in SECRETS.items() if name != "SLURM_JOB_ID"]
    assert files_with(outputs, *secrets, "ghp_alsosecret") == []
    assert files_with(outputs, "isobn_paper")  # the search finds what is there


@pytest.mark.slow
def test_measuring_before_the_first_step_changes_no_bit(small, monkeypatch, tmp_path):
    settings = [*small, "optimization.epochs=1", "tracking=none"]
    record, _ = run([*settings, f"output_dir={tmp_path}/one"])
    monkeypatch.setattr(IsotropyMonitor, "on_train_start", Callback.on_train_start)
    other, _ = run([*settings, f"output_dir={tmp_path}/two"])
    assert record["history"] == other["history"]
    assert (record["predictions"], other["isotropy_before"]) == (other["predictions"], {})


def test_no_setting_is_read_from_the_working_folder(tmp_path, monkeypatch):
    """In a copied project, the file may name a stranger's server, which would get the API key."""
    (tmp_path / "wandb").mkdir()
    (tmp_path / "wandb" / "settings").write_text("[default]\nbase_url = http://stranger.example\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(wandb_setup, "_singleton", None)
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "user"))
    assert "stranger" not in tracking.load_wandb().Settings().base_url + wandb_setup.singleton().settings.base_url


@pytest.mark.slow
def test_a_failed_run_says_so(small, outputs):
    settings = ["tracking=wandb", "optimization.lr=1e30", "optimization.warmup=0"]
    record, _ = run([*small, *settings])
    log = Log(outputs)
    assert log.summary["failure"] == record["failure"]["name"]
    assert log.summary["failure"].startswith("non_finite")
    assert (log.summary["status"], log.exit_code) == ("failed", 1)


@pytest.mark.slow
def test_an_interrupted_run_says_so(small, outputs, monkeypatch):
    from isobench.kinds.classification.module import Classifier

    def stop(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(Classifier, "on_train_epoch_end", stop)
    with pytest.raises(KeyboardInterrupt):
        run([*small, "tracking=wandb"])
    log = Log(outputs)
    assert (log.summary["status"], log.summary["failure"], log.exit_code) == ("interrupted", None, 1)


@pytest.mark.slow
def test_trouble_with_wandb_costs_the_run_nothing(small, monkeypatch, capfd):
    def broken(*arguments, **settings):
        raise OSError("the line is cut")

    with monkeypatch.context() as patch:
        patch.setattr(wandb.Table, "__init__", broken)
        patch.setattr(wandb, "finish", broken)
        record, _ = run([*small, "tracking=wandb", "optimization.epochs=1"])
    wandb.finish()
    assert record["status"] == "finished"
    assert capfd.readouterr().err.count("isobench: W&B: the line is cut; the run goes on without") == 2


def watch_two_seconds(**before):
    """A stopwatch that timed 60 examples of 5 tokens on average for two seconds; the loader, and what was logged."""
    watch, logged = Stopwatch(), {}
    watch.mean_tokens = 5.0
    watch.log = logged.__setitem__
    watch.load_state_dict(before or watch.state_dict())
    watch.on_train_start()
    watch._mark -= 2.0  # two seconds pass
    watch.on_train_batch_end(None, None, None, {"index": [0] * 60}, 0)
    watch.on_validation_start(None, None)
    return watch, logged


def test_throughput_after_an_interruption_is_of_what_was_trained_since():
    _, logged = watch_two_seconds(training=100.0, evaluation=5.0, examples=1000, seconds=106.0)
    assert logged["train/examples_per_second"] == pytest.approx(30, rel=0.01)
    assert logged["train/tokens_per_second"] == pytest.approx(150, rel=0.01)


def test_the_speed_of_a_run_that_fails_is_of_the_examples_that_were_timed():
    watch, _ = watch_two_seconds()
    watch.on_train_batch_end(None, None, None, {"index": [0] * 600}, 0)  # it fails before the next evaluation
    cost = watch.measure_cost(0.0)
    assert cost.examples == 660
    assert cost.tokens_per_second == pytest.approx(150, rel=0.01)
