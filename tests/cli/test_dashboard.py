"""Runs online and the dashboard, against a stand-in for W&B's server; what is missing, in one line."""

import gzip
import json
import re
import threading
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import wandb
from helpers import check_done, check_refused, files_with

from isobench.cli import dashboard

KEY = "0123456789abcdef0123456789abcdef01234567"
MATRICES = ("embedding", "head", "vocabulary")


ENTITY = "someone"
USER = {"id": "user", "entity": ENTITY, "username": ENTITY, "flags": "{}", "teams": {"edges": []}}
LAST_PAGE = {"endCursor": None, "hasNextPage": False}


class Received:
    """A stand-in for W&B's server on the loopback, enough for runs, workspaces and reports: what clients sent.

    It can't tell whether the real server takes the same, nor what its pages look like.
    """

    def __init__(self):
        self.url = ""
        self.runs, self.lines = {}, {}  # run id -> its settings, its files' lines
        self.views, self.bodies = [], []  # workspaces and reports; whatever was sent

    def file(self, run, name):
        """The JSON lines of one streamed file, in order."""
        lines = self.lines[run][name]
        return [json.loads(lines[number]) for number in sorted(lines)]

    def answer(self, operation, given):
        """The data of one GraphQL operation; an empty answer to one that is not known."""
        match operation:
            case "Viewer" | "GetDefaultEntity":
                return {"viewer": USER}
            case "ArtifactType":
                return {"project": {"artifact": None}}
            case "ServerInfo":
                versions = {"cliVersionInfo": {"max_cli_version": "99"}, "latestLocalVersionInfo": None}
                return {"serverInfo": versions}
            case "ServerFeaturesQuery":
                return {"serverInfo": {"features": []}}
            case "UpsertBucket":
                return self.add_run(given)
            case "CreateRunFiles":
                files = [{"name": name, "uploadUrl": f"{self.url}/storage/{name}"} for name in given["files"]]
                return {"createRunFiles": {"runID": "id", "uploadHeaders": [], "files": files}}
            case "CreateArtifact":
                sequence = {"id": "s", "latestArtifact": None}
                artifact = {"id": "artifact", "state": "COMMITTED", "artifactSequence": sequence}
                return {"createArtifact": {"artifact": artifact}}
            case "upsertView" | "UpsertView" | "UpsertView2":
                self.views.append({**given, "spec": json.loads(given["spec"])})
                view = {"id": f"view{len(self.views)}", "name": given["name"], "displayName": given["displayName"]}
                return {"upsertView": {"view": view, "inserted": True}}
            case "Runs":
                group = json.loads(given.get("filters") or "{}").get("group")
                count = sum(run.get("groupName") == group for run in self.runs.values())
                page = {"edges": [], "pageInfo": LAST_PAGE}
                return {"project": {"internalId": "p", "runCount": count, "readOnly": False, "runs": page}}
            case "ProjectInternalId":
                return {"project": {"id": "project", "internalId": "UHJvamVjdEludGVybmFsSWQ6MQ=="}}
            case "GetProjects":
                project = {"__typename": "Project", "id": "project", "name": "isobench", "entityName": ENTITY}
                project |= {"user": None, "createdAt": "2026-01-01T00:00:00Z", "isBenchmark": False}
                return {"models": {"edges": [{"node": project, "cursor": "1"}], "pageInfo": LAST_PAGE}}
        return {}

    def add_run(self, given):
        name = given.get("name") or given["id"].removeprefix("id-")
        run = self.runs.setdefault(name, {})
        run.update({key: value for key, value in given.items() if value is not None})
        project = {"id": "project", "name": run.get("project", "isobench"), "entity": {"id": "e", "name": ENTITY}}
        bucket = {"id": f"id-{name}", "name": name, "displayName": name, "config": "{}", "historyLineCount": 0}
        return {"upsertBucket": {"bucket": {**bucket, "sweepName": None, "project": project}, "inserted": True}}


class Handler(BaseHTTPRequestHandler):
    """Answer W&B's clients: their GraphQL, and files that they stream or put."""

    protocol_version = "HTTP/1.1"
    received: Received

    def log_message(self, *arguments):
        pass

    def body(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            parts = []
            while size := int(self.rfile.readline().strip() or b"0", 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            content = b"".join(parts)
        else:
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        content = gzip.decompress(content) if self.headers.get("Content-Encoding") == "gzip" else content
        self.received.bodies.append(content)
        return content

    def reply(self, value, code=200):
        content = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_GET(self):
        self.reply({}, 404)

    def do_PUT(self):
        self.body()
        self.reply({})

    def do_POST(self):
        content = self.body()
        if self.path.startswith("/graphql"):
            query = json.loads(content)
            operation = re.search(r"\b(?:query|mutation)\s+(\w+)", query["query"])[1]
            self.reply({"data": self.received.answer(operation, query.get("variables") or {})})
        elif self.path.endswith("/file_stream"):
            run = self.received.lines.setdefault(self.path.split("/")[4], {})
            for name, part in (json.loads(content).get("files") or {}).items():
                for number, line in enumerate(part["content"], part.get("offset", 0)):
                    run.setdefault(name, {})[number] = line
            self.reply({"exitcode": None, "limits": {}})
        else:
            self.reply({}, 404)


@contextmanager
def serve_stub():
    received = Received()
    handler = type("Bound", (Handler,), {"received": received})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.handle_error = lambda request, address: None  # a client that was killed
    received.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield received
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def server(monkeypatch):
    """The stand-in, this process logged in to it; W&B's own process ends with the test."""
    wandb.teardown()
    with serve_stub() as received:
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
    sweep = [*small, "+experiment=glue_isobn", "tracking=wandb", "calibration=none,isobn_paper"]
    check_refused(board(*sweep))
    assert server.views == []
    printed = "".join(check_done(cli(*sweep, "task.train_samples=48", "optimization.epochs=1", "-m")))
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
        assert (summary["best/score"], summary["status"]) == (record["best"]["score"], "finished")
        logged |= {key for row in [*history, summary] for key in row}

    printed += "".join(check_done(board("+experiment=glue_isobn", f"output_dir={outputs}", "--report")))
    workspace, _ = server.views
    view = workspace["spec"]["section"]
    sections = {section["name"]: section["panels"] for section in view["panelBankConfig"]["sections"]}
    isotropy = [f"Isotropy: {title}" for title in ("Embeddings after calibration", "Head", "Vocabulary")]
    assert list(sections) == ["Scores", *isotropy, "Training"]
    shown = {name: [metric for panel in panels for metric in metrics_of(panel)] for name, panels in sections.items()}
    assert {"best/score", "best/validation/accuracy", "dev/validation/accuracy"} <= set(shown["Scores"])
    for matrix, title in zip(MATRICES, isotropy, strict=True):
        wanted = [f"isotropy/{matrix}/{n}" for n in ("ev1", "ev3", "ev10", "i1", "i2", "isoscore", "ev_curve_table")]
        assert shown[title] == (wanted if matrix != "head" else wanted[3:5])  # a head of two classes is on one line
    assert set(shown["Training"]) == {name for name in logged if name.startswith("train/")}
    assert {metric for metrics in shown.values() for metric in metrics} <= logged  # nothing that is not there
    (runs,) = view["runSets"]
    (chosen,) = runs["filters"]["filters"]
    assert (chosen["key"]["name"], chosen["op"], chosen["value"]) == ("group", "=", "glue_isobn")

    assert files_with(outputs, KEY) == []
    assert KEY not in printed
    assert not any(KEY.encode() in body for body in server.bodies)
