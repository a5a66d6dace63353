"""A stand-in for W&B's server on the loopback, enough for runs, workspaces and reports; keeps what it was sent.

What it can't tell: whether the real server takes the same, and what its pages look like.
"""

import gzip
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ENTITY = "someone"
USER = {"id": "user", "entity": ENTITY, "username": ENTITY, "flags": "{}", "teams": {"edges": []}}


@dataclass
class Received:
    """What clients sent: run id -> its settings and its files' lines; views (workspaces, reports) by kind."""

    url: str = ""
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    lines: dict[str, dict[str, dict[int, str]]] = field(default_factory=dict)
    views: list[dict[str, Any]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)

    def file(self, run: str, name: str) -> list[dict[str, Any]]:
        """The JSON lines of one streamed file, in order."""
        lines = self.lines[run][name]
        return [json.loads(lines[number]) for number in sorted(lines)]

    def answer(self, operation: str, given: dict[str, Any]) -> dict[str, Any]:
        """The data of one GraphQL operation; an empty answer to one that is not known."""
        if (reply := getattr(self, f"on_{operation}", None)) is None:
            self.unanswered.append(operation)
            return {}
        return reply(given)

    def on_Viewer(self, given: dict[str, Any]) -> dict[str, Any]:
        return {"viewer": USER}

    on_GetDefaultEntity = on_Viewer

    def on_ArtifactType(self, given: dict[str, Any]) -> dict[str, Any]:
        return {"project": {"artifact": None}}

    def on_ServerInfo(self, given: dict[str, Any]) -> dict[str, Any]:
        return {"serverInfo": {"cliVersionInfo": {"max_cli_version": "99"}, "latestLocalVersionInfo": None}}

    def on_ServerFeaturesQuery(self, given: dict[str, Any]) -> dict[str, Any]:
        return {"serverInfo": {"features": []}}

    def on_UpsertBucket(self, given: dict[str, Any]) -> dict[str, Any]:
        name = given.get("name") or given["id"].removeprefix("id-")
        run = self.runs.setdefault(name, {})
        run.update({key: value for key, value in given.items() if value is not None})
        project = {"id": "project", "name": run.get("project", "isobench"), "entity": {"id": "e", "name": ENTITY}}
        bucket = {"id": f"id-{name}", "name": name, "displayName": name, "config": "{}", "historyLineCount": 0}
        return {"upsertBucket": {"bucket": {**bucket, "sweepName": None, "project": project}, "inserted": True}}

    def on_CreateRunFiles(self, given: dict[str, Any]) -> dict[str, Any]:
        files = [{"name": name, "uploadUrl": f"{self.url}/storage/{name}"} for name in given["files"]]
        return {"createRunFiles": {"runID": "id", "uploadHeaders": [], "files": files}}

    def on_CreateArtifact(self, given: dict[str, Any]) -> dict[str, Any]:
        artifact = {"id": "artifact", "state": "COMMITTED", "artifactSequence": {"id": "s", "latestArtifact": None}}
        return {"createArtifact": {"artifact": artifact}}

    def on_upsertView(self, given: dict[str, Any]) -> dict[str, Any]:
        self.views.append({**given, "spec": json.loads(given["spec"])})
        view = {"id": f"view{len(self.views)}", "name": given["name"], "displayName": given["displayName"]}
        return {"upsertView": {"view": view, "inserted": True}}

    on_UpsertView = on_UpsertView2 = on_upsertView

    def on_Runs(self, given: dict[str, Any]) -> dict[str, Any]:
        wanted = json.loads(given.get("filters") or "{}")
        found = [name for name, run in self.runs.items() if run.get("groupName") == wanted.get("group")]
        page = {"edges": [], "pageInfo": {"endCursor": None, "hasNextPage": False}}
        return {"project": {"internalId": "p", "runCount": len(found), "readOnly": False, "runs": page}}

    def on_ProjectInternalId(self, given: dict[str, Any]) -> dict[str, Any]:
        return {"project": {"id": "project", "internalId": "UHJvamVjdEludGVybmFsSWQ6MQ=="}}

    def on_GetProjects(self, given: dict[str, Any]) -> dict[str, Any]:
        project = {"__typename": "Project", "id": "project", "name": "isobench", "entityName": ENTITY, "user": None}
        project |= {"createdAt": "2026-01-01T00:00:00Z", "isBenchmark": False}
        page = {"endCursor": None, "hasNextPage": False}
        return {"models": {"edges": [{"node": project, "cursor": "1"}], "pageInfo": page}}


class Handler(BaseHTTPRequestHandler):
    """Files that are streamed, files that are put, GraphQL."""

    protocol_version = "HTTP/1.1"
    received: Received

    def log_message(self, *arguments: Any) -> None:
        """Silence."""

    def body(self) -> bytes:
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

    def reply(self, value: Any, code: int = 200) -> None:
        content = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_GET(self) -> None:
        self.reply({}, 404)

    def do_PUT(self) -> None:
        self.body()
        self.reply({})

    def do_POST(self) -> None:
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
def serve() -> Iterator[Received]:
    """A server in a thread of this process."""
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
