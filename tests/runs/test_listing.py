"""Reading the configs of many runs, their sections once, gives what reading each as a whole gives."""

import os
import time
from dataclasses import asdict, replace

import pytest
import yaml
from helpers import make_config
from omegaconf import OmegaConf

from isobench.common.errors import UserError
from isobench.common.files import add_text_checksum
from isobench.config.schema import config_from_plain
from isobench.data.weights import read_model_type
from isobench.runs.grouping import find_varying_settings, flatten_settings, read_setting
from isobench.runs.plan import parse_config, read_run_config, read_runs
from isobench.runs.run import Run

CONFIGS = [
    ["seed=3"],
    ["task=stsb", "task.as_classes=6", "calibration=isobn_paper"], ["task=multi30k", "encoder=bart-scratch"],
    ["calibration=[isobn_paper,cosine]", "optimization.clip=1.0"], ["output_dir='a: b # c'", "seeds.init=4"],
]  # fmt: skip
CHANGES = [
    ("lr: 2.0e-05", "lr: 1"), ("epochs: 10", "epochs: '10'"), ("epochs: 10", "epochs: ten"),
    ("epochs: 10", "epochs: 1.5"), ("epochs: 10", "epochs: null"),
    ("epochs: 10", "epochs: ???"), ("  epochs: 10\n", ""), ("  name: rotten_tomatoes\n", ""), ("seed: 1\n", ""),
    ("seed: 1", "seed: true"), ("seed: 1", "seed: 1\nseed: 2"), ("seed: 1", "---\nseed: 1"), ("seed: 1", "seed"),
    ("seed: 1", "mine: 2\nseed: 1"), ("seed: 1", "'seed': 1"), ("seed: 1", "seed: &a 5"), ("every: 1", "every: *a"),
    ("data:\n", "data: {\n"), ("seed: 1", "seed: 1\n...\n"),
    ("monitors: {}", "monitors: {a: 2001-01-01}"), ("monitors: {}", "monitors: {1: 2}"), ("seed: 1", "seed: |\n  1"),
    ("monitors: {}", "monitors: []"), ("grid: {}", "grid: {a: [{b: [1, null, x]}]}"), ("grid: {}", "grid: {a: [1]}"),
    ("text:", "text: sentence\n  t:"), ("dry_run: false", "dry_run: false\n\n# the end"), ("\n", "\n "),
    ("\n", "\r\n"), ("epochs: 10", "\n  epochs: 10"), ("seed: 1", "\nseed: 1"), ("seed: 1", "seed: 1\n- 2"),
]  # fmt: skip


def config_text(*overrides: str) -> str:
    return yaml.safe_dump(asdict(make_config(*overrides)), sort_keys=False)


def outcome(make, *arguments):
    """What a function returns, or that it raises an error."""
    try:
        return make(*arguments)
    except Exception:
        return "refused"


def read_whole(text: str):
    return config_from_plain(yaml.safe_load(text))


@pytest.mark.parametrize("overrides", CONFIGS, ids=" ".join)
def test_a_config_is_read_by_its_sections_as_it_is_as_a_whole(overrides):
    text = config_text(*overrides)
    cfg = parse_config(text)
    assert cfg == read_whole(text) == make_config(*overrides)
    assert parse_config(text).task is cfg.task  # a section with the same text is not parsed again


@pytest.mark.parametrize(("old", "new"), CHANGES)
def test_a_changed_file_is_read_as_it_is_as_a_whole_or_refused(old, new):
    text = config_text()
    assert old in text or old == "every: 1"
    text = text.replace(old, new, 1) if old != "\n" else text.replace(old, new)
    assert outcome(parse_config, text) in (outcome(read_whole, text), "refused")


def test_a_setting_that_is_newer_than_a_file_has_its_default(monkeypatch):
    cfg = make_config("seed=7")
    text = "".join(line for line in OmegaConf.to_yaml(asdict(cfg)).splitlines(True) if line != "report: true\n")
    assert "report:" in text  # optimization.report

    assert parse_config(text) == cfg


@pytest.mark.parametrize("section", ["task", "encoder", "head", "monitors", "output_dir"])
def test_a_file_that_lacks_a_section_is_read_or_refused_as_it_is_as_a_whole(section):
    plain = asdict(make_config())
    del plain[section]
    text = yaml.safe_dump(plain, sort_keys=False)
    assert outcome(parse_config, text) == outcome(read_whole, text)


def test_settings_are_found_one_by_one_and_vary_also_where_sections_are_shared():
    rows = [Run(make_config(*overrides), None, None) for overrides in CONFIGS]
    for row in rows:
        settings = flatten_settings(row.cfg)
        assert {name: read_setting(row.cfg, name) for name in settings} == settings
    assert read_setting(rows[0].cfg, "task.generation.beams") == read_setting(rows[0].cfg, "calibration.x") == "-"
    cfg = rows[0].cfg
    others = [replace(cfg, seed=4), replace(cfg, optimization=replace(cfg.optimization, lr=1e-3))]
    assert find_varying_settings([Run(one, None, None) for one in (cfg, *others)]) == ["optimization.lr"]


NESTED_ALIASES = "monitors:\n  a: &a {x: 1}\n" + "".join(
    f"  {new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefghi", "bcdefghij", strict=True)
)
NESTED_MERGES = "monitors:\n  a: &a {x: 1}\n" + "".join(
    f"  {new}: &{new} {{<<: [{', '.join([f'*{old}'] * 9)}]}}\n"
    for old, new in zip("abcdefghi", "bcdefghij", strict=True)
)
REFERENCES = "monitors:\n  a0: {x: 'ten letters'}\n" + "".join(
    f"  a{number + 1}: {{x: '{f'${{monitors.a{number}.x}}' * 9}'}}\n" for number in range(12)
)


@pytest.mark.parametrize(
    "text",
    [
        config_text().replace("monitors: {}\n", NESTED_ALIASES),
        config_text().replace("monitors: {}\n", NESTED_MERGES),
        "seed: &a 1\nscale: *a\n",
        config_text().replace("monitors: {}", "monitors: " + "[" * 100_000),
        config_text() + "# " + "x" * 2**20,
        config_text().replace("name: minilm", "name: ${oc.env:HOME}"),
        config_text().replace("epochs: 10", "epochs: ${seed}"),
        config_text().replace("monitors: {}\n", REFERENCES),
    ],
)
def test_a_bomb_or_a_foreign_value_is_refused_at_once(tmp_path, text):
    (tmp_path / "config.yaml").write_text(text)
    start = time.monotonic()
    with pytest.raises(UserError):
        read_run_config(tmp_path)
    assert time.monotonic() - start < 2


def test_a_pipe_in_place_of_a_file_is_named_and_leaves_the_other_runs(tmp_path, capfd):
    """The pipes are a config, a record, and a file of the folder that a config names, which is not opened."""
    model, output_dir = tmp_path / "model", tmp_path / "outputs"
    folders = [output_dir / "runs" / (name * 8) for name in ("a1", "a2", "a3")]
    for folder in (model, *folders):
        folder.mkdir(parents=True)
    os.mkfifo(model / "config.json")
    os.mkfifo(folders[0] / "config.yaml")
    os.mkfifo(folders[1] / "result.json")
    text = config_text("encoder=local", f"encoder.path={model}")
    for folder in folders[1:]:
        (folder / "config.yaml").write_text(add_text_checksum(text, folder.name))
    assert [row.folder.path for row in read_runs(str(output_dir))] == folders[2:]
    assert capfd.readouterr().err.count("left out") == 2


def test_a_pipe_in_a_models_config_is_no_architecture(tmp_path):
    os.mkfifo(tmp_path / "config.json")
    assert read_model_type(make_config("encoder=local", f"encoder.path={tmp_path}").encoder) is None
