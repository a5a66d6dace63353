"""Every setting's bound stands beside it in the schema, and is enforced."""

import dataclasses
import functools
import math
import typing

import pytest
from helpers import fails, make_config

from isobench.common.errors import UserError
from isobench.config import schema
from isobench.config.bounds import check_value, find_section, read_hints
from isobench.config.command_line import Override, check_typed_settings, expand_home_folders
from isobench.config.removed import REMOVED

# Of settings with the same bounds: values at the edge of what is valid, and values just outside.
BAD_NAMES = ["a/b", "/a", "../a", ".a", "-a", "=a", "", "a b", "[/bold]a", "<b>", "a\n", "a\x1b", "\u00e4", "x" * 65]
BAD_FOLDERS = ["/a", "a/", "../a", "a/../b", "a//b", "", "a\\b", ".a"]
BOUNDS = [
    ("Config", "seed", [0, 2**32 - 1], [-1, 2**32]), ("Config", "scale", ["paper"], ["papers"]),
    ("Config", "output_dir", ["x"], ["", "  "]), ("Seeds", "init order dropout", [None, 0, 2**32 - 1], [-1, 2**32]),
    ("Encoder", "name", ["a.b-c_1"], BAD_NAMES),
    ("Encoder", "missing_from", [None, "pytorch_model.bin"], ["", "../a.bin", "a/b.bin"]),
    ("Encoder", "layer", [None, 0], [-1]), ("Head", "dropout", [None, 0, 0.99], [-0.1, 1]),
    ("Optimization", "lr", [1e-9], [0, -1]), ("Optimization", "batch_size epochs accumulate", [1], [0]),
    ("Evaluation", "every", [1, 7, "last"], [0, -1, 1.5, True, "first", None]),
    ("Trainer", "precision", ["bf16-mixed"], ["bf16"]), ("Trainer", "threads", [None, 1, 4096], [0, 4097]),
    ("Data", "files", [None, {"train": "a.csv"}], [{}, "a.csv", {"train": 1}]),
    ("Selection", "seeds", [[], [0]], [[-1]]),
    ("Experiment", "name", [None, "a.b-c_1", "_a", "x" * 64], BAD_NAMES),
    ("MethodSettings", "version", [1], [0, 1.5]),
    ("Task", "folder subset", [None, "wmt16/ro-en", "3.0.0"], BAD_FOLDERS),
    ("Task", "text", [[], ["a"], ["a", "b"]], [["a", "b", "c"], ["a", "a"]]),
    ("Task", "labels", [None, ["a", "b"]], [[], ["a"], ["a", "a"], ["a", "b", "a"], ["a", " "]]),
    ("Task", "label_range", [None, [0, 5]], [[0], [5, 0], [0, math.inf], [math.nan, 5]]),
    ("Task", "metrics", [[], ["bleu"]], [["bl eu"]]),
    ("Task", "dev_splits", [["a"]], [[], *([name] for name in BAD_NAMES)]), ("Task", "label", [None, "stars"], [""]),
    ("Generation", "target", ["de"], ["???"]),
    ("Generation", "languages", [None, ["en", "ro"]], [["en"], ["en", "ro", "de"]]),
    ("Generation", "length_penalty", [-1, 0.0], [math.nan, math.inf]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("part", "names", "valid", "invalid"), BOUNDS, ids=[f"{part}.{names}" for part, names, _, _ in BOUNDS]
)
def test_a_bound_holds_at_its_edges(part, names, valid, invalid):
    for name in names.split():
        hint = read_hints(getattr(schema, part))[name]
        for value in valid:
            check_value(f"part.{name}", value, hint)
        for value in invalid:
            with fails():
                check_value(f"part.{name}", value, hint)


def test_every_number_has_a_bound():
    sections = [schema.Config]
    for section in sections:
        for name, hint in read_hints(section).items():
            options = [hint] if hasattr(hint, "__metadata__") else [hint, *typing.get_args(hint)]
            assert not [option for option in options if option in (int, float)], f"{section.__name__}.{name}"
            sections += [found for found in [find_section(hint)] if found]
    assert schema.Generation in sections


@pytest.mark.parametrize("setting", REMOVED)
def test_a_stored_setting_that_is_gone_is_read_with_its_old_value_alone(setting):
    cfg = make_config("task=multi30k", "encoder=bart-scratch") if "generation" in setting else make_config()
    plain = dataclasses.asdict(cfg)
    *parents, name = setting.split(".")
    section = functools.reduce(dict.get, parents, plain)
    section[name] = REMOVED[setting][0]
    assert schema.config_from_plain(plain) == cfg
    section[name] = "another value"
    with fails():
        schema.config_from_plain(plain)


@pytest.mark.parametrize(
    "arguments",
    [
        ["seed=1", "seed=2"], ["calibration=none", "-m", "calibration=isobn_paper,cosine"],
        ["+monitors.x=1", "++monitors.x=2"], ["+experiment=glue_isobn", "+experiment=isobn_ev"],
        ["+experiment=[glue_isobn,glue_calibration]"], ["task=[rte,sst2]"], ["hydra/launcher=[local,slurm]"],
        ["data.files={train: a.csv, train: b.csv, validation: c.csv}"],
    ],
)  # fmt: skip
def test_what_would_be_dropped_is_refused(arguments):
    with pytest.raises(UserError):
        check_typed_settings(arguments)


@pytest.mark.parametrize(
    ("setting", "expanded"),
    [
        ("encoder.path=~/model", "encoder.path='/home/me/model'"),
        ('data.root="~/my data"', "data.root='/home/me/my data'"),
        ("encoder.path=~/a,~/b", "encoder.path='/home/me/a','/home/me/b'"),
        ("data.files={train: ~/a.csv, dev:~/b}", "data.files={train: '/home/me/a.csv', dev:'/home/me/b'}"),
        ("encoder.path=/a~/b", "encoder.path=/a~/b"),
    ],
)
def test_the_home_folder_is_written_out_where_a_shell_leaves_it(monkeypatch, setting, expanded):
    monkeypatch.setenv("HOME", "/home/me")
    assert str(expand_home_folders(Override.parse(setting))) == expanded
