"""What W&B is given: every documented name, read back from a real run's log."""

import json
import struct
import subprocess
from dataclasses import asdict

import numpy as np
import pytest
import wandb
from helpers import check_done, tiny_overrides, train_run
from pytorch_lightning.callbacks import Callback
from wandb.proto.wandb_internal_pb2 import Record
from wandb.sdk import wandb_setup

from isobench.training import tracking
from isobench.training.monitor import IsotropyMonitor

KEY = "0123456789abcdef0123456789abcdef01234567"
SECRETS = {"WANDB_API_KEY": KEY, "HF_TOKEN": "hf_verysecret", "SLURM_JWT": "slurmsecret", "SLURM_JOB_ID": "7"}
REMOTE = "https://ghp_alsosecret:x-oauth-basic@example.com/someone/else.git"
HEADER = struct.Struct("<4sHB")  # of the file: identifier, magic number, version
CHUNK = struct.Struct("<IHB")  # of a chunk: checksum, length, type
BLOCK, LAST_CHUNKS = 32768, (1, 4)  # types of the chunks that end a message
EPOCHS, BATCHES = 3, 10


class Norms(Callback):
    seen: list[float] = []  # noqa: RUF012

    def on_before_optimizer_step(self, trainer, module, optimizer):
        squares = [p.grad.double().square().sum() for p in module.parameters() if p.grad is not None]
        self.seen.append(float(sum(squares)) ** 0.5)


def read_messages(data):
    assert HEADER.unpack_from(data)[0] == b":W&B"
    position, content = HEADER.size, b""
    while position + CHUNK.size <= len(data):
        if (left := BLOCK - position % BLOCK) < CHUNK.size:  # a block's end, too short for a chunk
            position += left
            continue
        _, length, kind = CHUNK.unpack_from(data, position)
        position += CHUNK.size + length
        content += data[position - length : position]
        if kind in LAST_CHUNKS:
            yield Record.FromString(content)
            content = b""


class Log:
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
    repository = tmp_path_factory.mktemp("offline")
    outputs = repository / "outputs"
    settings = ["tracking=wandb", f"optimization.epochs={EPOCHS}", "calibration=isobn_paper"]
    settings += ["optimization.clip=0.5", "+monitors.norms={_target_: test_tracking.Norms}", "experiment.name=mine"]
    Norms.seen.clear()
    commit = ["-c", "user.name=me", "-c", "user.email=me@example.com", "commit", "--allow-empty", "-m", "first"]
    for command in (["init"], ["remote", "add", "origin", REMOTE], commit):
        subprocess.run(["git", *command], cwd=repository, check=True, capture_output=True)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SECRETS.items():
            patch.setenv(name, value)
        record, _, cfg = train_run(*tiny_overrides(tiny, reviews, cache, outputs), *settings)
    assert record["status"] == "finished"
    return record, cfg, Log(outputs), outputs


@pytest.mark.slow
def test_training_curves(offline):
    _, cfg, log, _ = offline
    steps = EPOCHS * BATCHES
    assert log.curve("train/loss")[-1] < log.curve("train/loss")[0]
    assert len(log.curve("train/loss")) == steps  # a short run: every step
    warm = np.ceil(cfg.optimization.warmup * steps)
    factor = [step / warm if step < warm else (steps - step) / (steps - warm) for step in range(steps)]
    np.testing.assert_allclose(log.curve("train/lr"), cfg.optimization.lr * np.array(factor), rtol=1e-6)
    np.testing.assert_allclose(log.curve("train/gradient_norm"), Norms.seen, rtol=1e-5)
    assert max(Norms.seen) > cfg.optimization.clip
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


@pytest.mark.slow
def test_summary_and_config_are_the_records(offline):
    record, cfg, log, _ = offline
    best, summary = record["best"], log.summary
    assert (summary["status"], summary["failure"], log.exit_code) == ("finished", None, 0)
    assert (summary["best/score"], summary["best/epoch"]) == (best["score"], best["epoch"])
    assert summary["best/step"] == best["epoch"] * BATCHES
    assert summary["best/validation/accuracy"] == best["validation"]["accuracy"]
    isotropy = {name.removeprefix("best/isotropy/"): v for name, v in summary.items() if "best/isotropy" in name}
    assert isotropy == pytest.approx(best["isotropy"])
    resolved = {name: value for name, value in log.config.items() if not name.startswith("_wandb")}
    assert (resolved.pop("method"), resolved.pop("key")) == ("isobn_paper", record["key"])
    assert resolved.pop("provenance")["versions"] == record["provenance"]["versions"]
    del resolved["encoder_label"]
    assert resolved == asdict(cfg)
    assert (log.run.run_id, log.run.run_group, log.run.job_type) == (record["key"][:16], "mine", "sst2")


@pytest.mark.slow
def test_no_secret_is_written(offline):
    _, _, _, outputs = offline
    secrets = [value for name, value in SECRETS.items() if name != "SLURM_JOB_ID"]
    written = [file.read_bytes() for file in outputs.rglob("*") if file.is_file()]
    assert not [text for text in written if any(own.encode() in text for own in (*secrets, "ghp_alsosecret"))]
    assert any(b"isobn_paper" in text for text in written)  # the search finds what is there


@pytest.mark.slow
def test_measuring_before_the_first_step_changes_no_bit(small, monkeypatch, tmp_path):
    settings = [*small, "optimization.epochs=1", "tracking=none"]
    record, *_ = train_run(*settings, f"output_dir={tmp_path}/one")
    monkeypatch.setattr(IsotropyMonitor, "on_train_start", Callback.on_train_start)
    other, *_ = train_run(*settings, f"output_dir={tmp_path}/two")
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
    record, *_ = train_run(*small, "tracking=wandb", "optimization.lr=1e30", "optimization.warmup=0")
    log = Log(outputs)
    assert log.summary["failure"] == record["failure"]["name"]
    assert (log.summary["status"], log.exit_code) == ("failed", 1)


@pytest.mark.slow
def test_trouble_with_wandb_costs_the_run_nothing(small, monkeypatch):
    def broken(*arguments, **settings):
        raise OSError("the line is cut")

    with monkeypatch.context() as patch:
        patch.setattr(wandb.Table, "__init__", broken)
        patch.setattr(wandb, "finish", broken)
        record, *_ = train_run(*small, "tracking=wandb", "optimization.epochs=1")
    wandb.finish()
    assert record["status"] == "finished"


@pytest.mark.slow
def test_wandb_that_cant_start_leaves_nothing_and_tells_no_key(small, outputs, cli, monkeypatch):
    for name, value in {"BASE_URL": "http://127.0.0.1:9", "API_KEY": "not-a-key", "MODE": "online"}.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    wandb.teardown()  # what an earlier test's W&B has read of the environment
    code, out, err = cli(*small, "tracking=wandb")
    wandb.teardown()
    assert code == 2
    assert "not-a-key" not in out + err
    assert not list(outputs.glob("runs/*"))
    monkeypatch.setenv("ISOBENCH_JOB", "1_1")
    assert "not-a-key" not in "".join(check_done(cli(*small, "tracking=wandb"))[1:])
    wandb.teardown()
    assert list(outputs.glob("wandb/offline-run-*"))
