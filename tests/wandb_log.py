"""Reads a W&B transaction log (``run-*.wandb``): a LevelDB log whose records are wandb's protobuf messages."""

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wandb.proto.wandb_internal_pb2 import Record

HEADER = struct.Struct("<4sHB")  # file: identifier, magic number, version
CHUNK = struct.Struct("<IHB")  # chunk: crc, length, type
BLOCK = 32768
FULL, LAST = 1, 4  # types of the chunks that end a record


@dataclass
class Logged:
    """What a run logged: its config, rows of history in order, its last summary, and how it ended."""

    config: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    run: Any = None
    exit_code: int | None = None

    def curve(self, name: str) -> list[Any]:
        """The values logged under a name, in order."""
        return [row[name] for row in self.history if name in row]

    @property
    def names(self) -> set[str]:
        """Every name in the history that is not W&B's own."""
        return {name for row in self.history for name in row if not name.startswith("_")}


def read(file: Path) -> Logged:
    """Everything in one log."""
    logged = Logged()
    for record in records(file.read_bytes()):
        kind = record.WhichOneof("record_type")
        if kind == "history":
            logged.history.append(items(record.history.item))
        elif kind == "summary":
            logged.summary |= items(record.summary.update)
        elif kind == "config":
            logged.config |= items(record.config.update)
        elif kind == "run":
            logged.run = record.run
            logged.config |= items(record.run.config.update)
        elif kind == "exit":
            logged.exit_code = record.exit.exit_code
    return logged


def items(found: Any) -> dict[str, Any]:
    """Protobuf's list of keys and JSON values as a dict."""
    return {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in found}


def records(data: bytes) -> Iterator[Record]:
    """The messages of a log, each joined from its chunks, its checksums verified."""
    assert HEADER.unpack_from(data)[0] == b":W&B"
    position, content = HEADER.size, b""
    while position + CHUNK.size <= len(data):
        left = BLOCK - position % BLOCK
        if left < CHUNK.size:  # a block's end, too short for a chunk
            position += left
            continue
        checksum, length, kind = CHUNK.unpack_from(data, position)
        chunk = data[position + CHUNK.size : position + CHUNK.size + length]
        assert zlib.crc32(chunk, zlib.crc32(bytes([kind]))) == checksum
        position += CHUNK.size + length
        content += chunk
        if kind in (FULL, LAST):
            yield Record.FromString(content)
            content = b""
