"""Runs online and the dashboard, against a stand-in for W&B's server; what is missing, in one line."""

import json
from functools import partial

import pytest
import wandb
import wandb_stub
from helpers import files_with

from isobench.cli import dashboard

KEY = "0123456789abcdef0123456789abcdef01234567"
MATRICES = ("embedding", "head", "vocabulary")


@pytest.fixture
def server(monkeypatch):
    """The stand-in, this process logged in to it; W&B's own process ends with the test."""
    wandb.teardown()
    with wandb_stub.serve() as received:
        monkeypatch.delenv("WANDB_MODE")
        monkeypatch.setenv("WANDB_BASE_URL", received.url)
        monkeypatch.setenv("WANDB_API_KEY", KEY)
        yield received
        wandb.teardown()


@pytest.fixture
def board(command):
    """The dashboard's command line in this process: exit code, standard output, standard error."""
    return partial(command, dashboard.main)


def metrics_of(panel):
    """The names a panel shows."""
    config = panel["config"]
    if panel["viewType"] == "Vega2":
        (query,) = config["userQuery"]["queryFields"]
        return [field["args"][0]["value"] for field in query["fields"] if field["name"] == "summaryTable"]
    names = config["metrics"] if "metrics" in config else [config["xAxis"], config["yAxis"]]
    return [name.removeprefix("summary:") for name in names]


@pytest.mark.slow
def test_runs_online_and_their_dashboard(server, small, outputs, cli, board):
    sweep = [
        *small,
        "+experiment=glue_isobn",
        "tracking=wandb",
        "calibration=none,isobn_paper",
        "task.train_samples=48",
    ]
    sweep += ["optimization.epochs=1"]
    code, out, err = cli(*sweep, "-m")
    assert code == 0, err
    printed = out + err
    records = [json.loads(file.read_text()) for file in outputs.glob("runs/*/result.json")]
    assert len(records) == 2
    logged = set()
    for record in records:
        name = record["key"][:16]
        sent = server.runs[name]
        assert (sent["groupName"], sent["jobType"], sent["project"]) == ("glue_isobn", "sst2", "isobench")
        assert json.loads(sent["config"])["method"]["value"] == record["config"]["calibration"]["name"]
        history = server.file(name, "wandb-history.jsonl")
        assert len([row for row in history if "train/loss" in row]) == 3
        summary = server.file(name, "wandb-summary.json")[-1]
        assert summary["best/score"] == record["best"]["score"]
        assert summary["status"] == "finished"
        logged |= {key for row in [*history, summary] for key in row}

    code, out, err = board("+experiment=glue_isobn", f"output_dir={outputs}", "--report")
    printed += out + err
    assert code == 0, err
    assert out.startswith(f"Workspace: {server.url}/{wandb_stub.ENTITY}/isobench?nw=")
    assert f"Report: {server.url}/{wandb_stub.ENTITY}/isobench/reports/" in out
    workspace, report = server.views
    view = workspace["spec"]["section"]
    sections = {section["name"]: section["panels"] for section in view["panelBankConfig"]["sections"]}
    isotropy = [f"Isotropy: {title}" for title in ("Embeddings after calibration", "Head", "Vocabulary")]
    assert list(sections) == ["Scores", *isotropy, "Training"]
    shown = {name: [metric for panel in panels for metric in metrics_of(panel)] for name, panels in sections.items()}
    assert {"best/score", "best/validation/accuracy", "dev/validation/accuracy"} <= set(shown["Scores"])
    for matrix, title in zip(MATRICES, isotropy, strict=True):
        wanted = [f"isotropy/{matrix}/{n}" for n in ("ev1", "ev3", "ev10", "i1", "i2", "isoscore", "ev_curve_table")]
        assert shown[title] == wanted
    assert set(shown["Training"]) == {name for name in logged if name.startswith("train/")}
    assert {metric for metrics in shown.values() for metric in metrics} <= logged  # nothing that is not there
    (runs,) = view["runSets"]
    assert [key["name"] for key in runs["grouping"]] == ["task.value.name", "encoder_label.value", "method.value"]
    (chosen,) = runs["filters"]["filters"]
    assert (chosen["key"]["name"], chosen["op"], chosen["value"]) == ("group", "=", "glue_isobn")
    assert report["displayName"] == "isobench glue_isobn"
    assert "jobType" in json.dumps(report["spec"])

    assert files_with(outputs, KEY) == []
    assert KEY not in printed
    assert not any(KEY.encode() in body for body in server.bodies)


@pytest.mark.slow
def test_runs_that_are_not_online_are_missed(server, small, board):
    code, _, err = board(*small, "+experiment=glue_isobn", "tracking=wandb")
    assert code == 2
    assert "W&B has no runs of glue_isobn in someone/isobench" in err
    assert "wandb sync" in err
    assert server.views == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["+experiment=glue_isobn", "tracking=none"], "glue_isobn was run with tracking=none"),
        (["+experiment=isobn_ev"], "isobn_ev trains nothing"),
        (["+experiment=glue_isobn", "tracking=wandb"], "there is no W&B login: run wandb login"),
        (["tracking=wandb", "seed=1"], "name one W&B group"),
        (["+experiment=glue_isobnn"], "did you mean glue_isobn"),
        (["output_dir=/nowhere"], "nothing was run in /nowhere yet"),
    ],
)
def test_what_is_missing_is_one_line(board, monkeypatch, tmp_path, cache, arguments, said):
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    place = [] if "output_dir=/nowhere" in arguments else [f"output_dir={tmp_path}", f"data.cache={cache}"]
    code, out, err = board(*arguments, *place)
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.strip().splitlines()) == 1


def test_a_missing_package_is_one_line(board, monkeypatch):
    monkeypatch.setattr("isobench.common.packages.find_spec", lambda name: None)
    code, _, err = board("+experiment=glue_isobn")
    assert code == 2
    assert "isobench dashboard needs the package wandb-workspaces: pip install 'isobench[dashboard]'" in err
    assert len(err.splitlines()) == 1


@pytest.mark.slow
def test_a_server_that_is_not_there_is_one_line(board, monkeypatch, small):
    monkeypatch.setattr(wandb, "Api", lambda: (_ for _ in ()).throw(ConnectionError("no route")))
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    code, _, err = board(*small, "+experiment=glue_isobn", "tracking=wandb")
    assert (code, err) == (2, "isobench: W&B could not make the dashboard: no route\n")
