"""Paths, tokens and names that a bundle must not or need not tell."""

import pytest

from isobench.bundles.privacy import (
    Disguise,
    find_remains,
    hide_paths,
    hide_paths_in_arguments,
    list_names,
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
    arguments += ["+data.files.test=alice/c.csv", "--config-dir", "alice-configs", "--config-dir=alice-configs"]
    assert hide_paths_in_arguments([*arguments, "-cd", "alice", "--paper=alice/mine", "data.root=al ice"]) == [
        "encoder.path=PATH/TO/models", "data.files=PATH/TO", "seed=1", "+data.files.test=PATH/TO/c.csv",
        "--config-dir", "PATH/TO", "--config-dir=PATH/TO", "-cd", "PATH/TO", "--paper=PATH/TO", "data.root=PATH/TO",
    ]  # fmt: skip
    config = {"encoder": {"path": "../alice/models", "hub": "a/b"}, "output_dir": "x"}
    config["data"] = {"root": "C:\\Users\\alice", "files": {"train": "al ice/a.csv", "test": "b.csv"}, "cache": "x"}
    assert Disguise([]).anonymise_config(config) == {
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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("alice-bert", "anonymous-bert"),
        ("alice_bert of Alice", "anonymous_bert of anonymous"),
        ("myALICE2.txt", "myanonymous2.txt"),
        ("on node17.cluster:", "on anonymous:"),
        ("jd-bert, jd_2 and ajdb", "anonymous-bert, anonymous_2 and ajdb"),
        ("linear with max_length on root", "linear with max_length on root"),  # words of isobench's own
        ("linbert and my-linear", "anonymousbert and my-anonymousear"),
        ("3fa" * 13, "3fa" * 13),
    ],
)
def test_a_name_is_replaced_whatever_touches_it(text, expected):
    names = ["alice", "node17", "node17.cluster", "jd", "lin", "root", "max", "fa3"]
    assert Disguise(names).hide_names(text) == expected


def test_a_name_in_a_key_or_in_rows_is_refused():
    import io

    import pyarrow.parquet

    for content in ({"files": {"Alice.csv": 1}}, {"a": [{"my_alice": "x"}]}):
        with pytest.raises(UserError, match="(?i)alice"):
            Disguise(["alice"]).hide(content)
    for column, value in (("encoder", "alice-bert"), ("by_alice", "x"), ("notes", ["of alice"])):
        file = io.BytesIO()
        pyarrow.parquet.write_table(
            pyarrow.table(
                {"n": [1, 2], column: ["x", value][:2]} if value == "alice-bert" else {"n": [1], column: [value]}
            ),
            file,
        )
        with pytest.raises(UserError, match="alice"):
            Disguise(["alice"]).require_no_name_in_rows("rows.parquet", file.getvalue())


def test_the_names_of_users_machines_and_owners_of_home_folders_are_found(monkeypatch):
    monkeypatch.setattr("getpass.getuser", lambda: "alice")
    monkeypatch.setattr("platform.node", lambda: "laptop.lan")
    monkeypatch.setenv("HOME", "/home/alicia")
    record = {
        "where": {"host": "gpu3.cluster", "machine": "m"},
        "command": ["data.root=/Users/bob/x", "~carol/y", "~5 s"],
    }
    found = {"alice", "alicia", "laptop.lan", "laptop", "gpu3.cluster", "gpu3", "m", "bob", "carol"}
    assert list_names([record]) == found


def test_what_stays_of_paths_is_listed():
    assert find_remains([b'"PATH/TO/glue of alice", "PATH/TO/home"', b"data.files={train:PATH/TO/a.csv}"]) == [
        "a.csv",
        "glue",
    ]
