"""Paths, tokens and names that a bundle must not or need not tell."""

import pytest

from isobench.bundles.privacy import (
    anonymise_config,
    find_remains,
    hide_paths,
    hide_paths_in_arguments,
    list_user_names,
    require_anonymous,
    require_no_secret,
)
from isobench.common.errors import UserError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("data.root=/home/alice/glue", "data.root=PATH/TO/glue"),
        ("data.root=~/glue", "data.root=PATH/TO/glue"),
        ("data.root=~alice/glue", "data.root=PATH/TO/glue"),
        (
            "data.files={train:/home/alice/a.csv,validation:b.csv}",
            "data.files={train:PATH/TO/a.csv,validation:b.csv}",
        ),
        ("encoder.path=[/models/a,/models/b]", "encoder.path=[PATH/TO/a,PATH/TO/b]"),
        ("hydra.searchpath=[file:///home/alice/conf]", "hydra.searchpath=[file://PATH/TO/conf]"),
        ('File "/home/alice/isobench/x.py", line 3, in f', 'File "PATH/TO/x.py", line 3, in f'),
        ("data.root=C:\\Users\\alice", "data.root=PATH/TO/home"),
        ("data.root=C:\\Users\\alice\\glue", "data.root=PATH/TO/glue"),
        ("data.root=\\\\server\\share\\glue", "data.root=PATH/TO/glue"),
        ("data.root=//net/share", "data.root=PATH/TO/share"),
        ("at /home/alice, 7//2 and a // b", "at PATH/TO/home, 7//2 and a // b"),
        ("task.hub=nyu-mll/glue", "task.hub=nyu-mll/glue"),
        ("https://example.org/a/b", "https://example.org/a/b"),
        ("../data and a/b, 1/2, and/or </s> ~5 s", "../data and a/b, 1/2, and/or </s> ~5 s"),
    ],
)
def test_absolute_paths_are_hidden_and_nothing_else(text, expected):
    assert hide_paths(text) == expected


def test_arguments_lose_what_concerns_this_machine_only():
    arguments = [
        "+experiment=glue_isobn", "output_dir=/home/alice/out", "data.cache=/scratch/x", "tracking=none",
        "tracking.entity=alice", "checkpoint.export=/home/alice/models", "seed=1,2", "data.root=/home/al ice/glue",
    ]  # fmt: skip
    assert hide_paths_in_arguments(arguments) == ["+experiment=glue_isobn", "seed=1,2", "data.root=PATH/TO"]


def test_settings_that_are_paths_lose_relative_folders_too():
    arguments = ["encoder.path=../alice/models", "data.files={train:alice/a.csv,validation:b.csv}", "seed=1"]
    arguments += ["data.files.test=alice/c.csv", "--config-dir", "alice-configs", "--config-dir=alice-configs"]
    assert hide_paths_in_arguments([*arguments, "-cd", "alice", "data.files={train: alice/a.csv}"]) == [
        "encoder.path=PATH/TO/models", "data.files={train:PATH/TO/a.csv,validation:b.csv}", "seed=1",
        "data.files.test=PATH/TO/c.csv", "--config-dir", "PATH/TO", "--config-dir=PATH/TO",
        "-cd", "PATH/TO", "data.files=PATH/TO",
    ]  # fmt: skip
    config = {"encoder": {"path": "../alice/models", "hub": "a/b"}, "output_dir": "x"}
    config["data"] = {"root": "C:\\Users\\alice", "files": {"train": "al ice/a.csv", "test": "b.csv"}, "cache": "x"}
    assert anonymise_config(config) == {
        "encoder": {"path": "PATH/TO/models", "hub": "a/b"},
        "output_dir": "outputs",
        "data": {"root": "PATH/TO/home", "files": {"train": "PATH/TO/a.csv", "test": "b.csv"}, "cache": None},
    }


@pytest.mark.parametrize(
    "text",
    [
        "hf_" + "a1B2" * 9, "ghp_" + "a1B2" * 9, "AKIA" + "ABCD" * 4, "-----BEGIN OPENSSH PRIVATE KEY-----",
        "api_key: " + "0123456789" * 4, "WANDB_API_KEY=" + "0123456789" * 4,
    ],
)  # fmt: skip
def test_tokens_are_found_by_their_form(text):
    with pytest.raises(UserError, match="holds what looks like") as refusal:
        require_no_secret("runs/x/result.json", f"before {text} after".encode())
    assert text not in str(refusal.value)


def test_names_that_are_ordinary_words_are_not_looked_for():
    require_anonymous("x", b'"accelerator": "gpu"', ["gpu"])
    for name in ("node-1", "gauss"):
        with pytest.raises(UserError, match=f"names {name}"):
            require_anonymous("x", f"on {name}:".encode(), [name])
    require_anonymous("x", b"on node-12", ["node-1"])
    require_anonymous("doses.parquet", b"\x00vm\x00", ["vm"])
    with pytest.raises(UserError, match="doses.parquet names node-1"):
        require_anonymous("doses.parquet", b"\x00node-1\x00", ["node-1"])


def test_the_users_names_are_looked_for_and_what_stays_is_listed(monkeypatch):
    monkeypatch.setattr("getpass.getuser", lambda: "alice")
    monkeypatch.setenv("HOME", "/home/alicia")
    assert list_user_names() == ["alice", "alicia"]
    texts = [b'"PATH/TO/glue of alice", "PATH/TO/home"', b"data.files={train:PATH/TO/a.csv}"]
    assert find_remains(["alice", "root"], texts) == ["a.csv", "glue", "root"]
