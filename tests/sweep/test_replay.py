"""A remembered sweep is planned again from its settings alone, whoever wrote its file."""

import os
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml
from helpers import make_config, make_record

from isobench.cli import status
from isobench.common.errors import UserError
from isobench.runs.layout import commands_folder
from isobench.runs.record_file import write_record_file
from isobench.sweep import rows
from isobench.sweep.replay import check_setting, plan_saved_command, select_settings, work_in
from isobench.sweep.saved_commands import SweepCommand, save_command

ALLOWED = [
    "seed=1,2,3", "seed=range(1,6)", "+experiment=glue_isobn", "task=sst2,rte", "task=glob(w*)", "data.root=../data",
    "encoder.path=/models/bert", "calibration=[isobn_paper,cosine]", "calibration.beta=0.25,0.5", "scale=paper",
    "+calibration@calibration.then=cosine", "+monitors.x._target_=a.B", "++monitors.x={_target_: a.B}", "~monitors.x",
    "seeds.order=${seed}", "tracking.group='a b'", "optimization.batch_tokens=null",
    "experiment.selection.rule=seeds",
]  # fmt: skip
REFUSED = [
    "hydra.searchpath=[pkg://outputs.evil.conf]", "+hydra.searchpath=[file:///tmp]", "++hydra.sweeper._target_=a.B",
    "hydra/launcher@hydra.sweeper=x", "~hydra.job", "+task@hydra.job=sst2", "+task@_global_=sst2", "+evil=1",
    "encoder.name=${oc.env:HOME}", "task=${oc.env:HOME}", "seed=${oc.decode:${oc.env:N}}", "seed=${${a}:b}",
    "encoder.name=${hydra.runtime.cwd}", "+experiment=../../outputs/evil", "task=/tmp/evil", "task=sst2,../x",
    "task='/tmp/evil'", "task=pkg://x", "--config-name=x", "-cn", "--package=p",
    "encoder=a\\b", "calibration=[a,../b]", "task=choice(sst2,/x)",
]  # fmt: skip


@pytest.mark.parametrize("argument", ALLOWED)
def test_settings_of_isobench_are_taken(argument):
    check_setting(argument)


@pytest.mark.parametrize("argument", REFUSED)
def test_all_else_is_refused_in_one_line(argument):
    with pytest.raises(UserError, match=r"not taken from a file") as refusal:
        check_setting(argument)
    assert "\n" not in str(refusal.value)


def evil_package(tmp_path, name: str) -> None:
    """A package that notes its import in a file, with a group of configs in it."""
    conf = tmp_path / name / "conf" / "task"
    conf.mkdir(parents=True)
    for folder in (conf, conf.parent, conf.parent.parent):
        (folder / "__init__.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w')")
    (conf / "evil.yaml").write_text("name: evil\n")


def test_no_code_of_a_copied_folder_runs(tmp_path, monkeypatch, capfd):
    evil_package(tmp_path, "evil_outputs")
    monkeypatch.syspath_prepend(tmp_path)  # as python -m does with the working folder
    output_dir = str(tmp_path / "evil_outputs")
    arguments = ["hydra.searchpath=[pkg://evil_outputs.conf]", "task=rotten_tomatoes"]
    save_command(output_dir, SweepCommand(None, arguments, str(tmp_path)))
    with pytest.raises(UserError, match="none of the runs"):
        status.print_status([f"output_dir={output_dir}"])
    assert "hydra.searchpath is no setting of isobench" in capfd.readouterr().err
    assert not (tmp_path / "imported").exists()


@pytest.mark.parametrize("entry", ["", "."])
def test_nothing_is_imported_from_the_folder_of_a_sweep(tmp_path, monkeypatch, entry):
    (tmp_path / "canary_module.py").write_text("")
    monkeypatch.setattr(sys, "path", [entry, *sys.path])
    with work_in(str(tmp_path)):
        assert Path.cwd() == tmp_path
        with pytest.raises(ImportError):
            import canary_module  # noqa: F401
    assert sys.path[0] == entry


def test_an_environment_variable_is_shown_from_no_file(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("CANARY", "canaryvalue")
    cfg = make_config()
    folder = tmp_path / "runs" / ("ab" * 8)
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(
        yaml.safe_dump(asdict(cfg), sort_keys=False).replace("name: minilm", "name: ${oc.env:CANARY}")
    )
    content = asdict(cfg)
    content["encoder"]["name"] = "${oc.env:CANARY}"
    write_record_file(folder / "result.json", replace_config(make_record(cfg), content))
    save_command(str(tmp_path), SweepCommand(None, ["encoder.name=${oc.env:CANARY}"], str(tmp_path)))
    with pytest.raises(UserError, match="none of the runs"):
        status.print_status([f"output_dir={tmp_path}"])
    output = capfd.readouterr()
    assert "only other settings can be referred to" in output.err
    assert "the config of a run can't refer to other values" in output.err
    assert "canaryvalue" not in output.out + output.err


def replace_config(record, content):
    return record.model_copy(update={"config": content})


def test_a_folder_of_configs_is_used_only_if_the_user_names_it_too(tmp_path, monkeypatch):
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    (tmp_path / "conf" / "experiment" / "mine.yaml").write_text("# @package _global_\nexperiment:\n  name: mine\n")
    monkeypatch.chdir(tmp_path)
    output_dir = str(tmp_path / "outputs")
    arguments = ["--config-dir", "conf", "+experiment=mine", "seed=1,2", f"output_dir={output_dir}", "tracking=none"]
    command = SweepCommand("mine", arguments, str(tmp_path))
    with pytest.raises(UserError, match=rf"add --config-dir={tmp_path}/conf if you trust that folder"):
        plan_saved_command(command, output_dir)
    with pytest.raises(UserError, match="add --config-dir="):
        plan_saved_command(command, output_dir, [str(tmp_path / "other")])
    assert len(plan_saved_command(command, output_dir, ["conf"])) == 2
    (tmp_path / "outputs").mkdir()
    save_command(output_dir, command)
    for flags in (["--config-dir=conf"], ["--config-dir", "conf"], ["-cd", str(tmp_path / "conf")]):
        title, found = rows.find_sweep_rows([*flags, "+experiment=mine", f"output_dir={output_dir}"])
        assert (title, len(found)) == ("mine", 2)


def test_settings_of_hydra_and_the_output_folder_are_dropped(tmp_path):
    arguments = [
        "hydra/launcher=slurm",
        "hydra.launcher.partition=x",
        "hydra.mode=MULTIRUN",
        "output_dir=old",
        "seed=1",
    ]
    assert select_settings(SweepCommand(None, arguments, "/"), []) == ["seed=1"]


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"experiment": ' * 5000, "\xff", '{"arguments": [' + '"seed=1",' * 300_000 + '""]}']
)
def test_a_command_file_of_any_content_is_named(tmp_path, text):
    commands_folder(tmp_path).mkdir()
    (commands_folder(tmp_path) / "a.json").write_text(text, encoding="latin-1")
    with pytest.raises(UserError, match=r"a\.json is damaged"):
        status.print_status([f"output_dir={tmp_path}"])


def test_a_pipe_and_a_dangling_link_among_commands_are_named(tmp_path):
    commands_folder(tmp_path).mkdir()
    file = commands_folder(tmp_path) / "a.json"
    os.mkfifo(file)
    with pytest.raises(UserError, match=r"a\.json is damaged"):
        status.print_status([f"output_dir={tmp_path}"])
    file.unlink()
    file.symlink_to("nowhere")
    with pytest.raises(UserError, match=r"a\.json is damaged"):
        status.print_status([f"output_dir={tmp_path}"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["seed=range(1,1000000000)"], "more than 100,000 values"),
        (["seed=shuffle(range(0,1e18))"], "more than 100,000 values"),
        (["seed=range(1,1001)", "optimization.epochs=range(1,1001)"], "more than 100,000 combinations"),
        (["seed=" + "[" * 3000], "can't be planned"),
    ],
)
def test_a_sweep_that_would_fill_the_memory_is_refused(tmp_path, arguments, message):
    with pytest.raises(UserError, match=message):
        plan_saved_command(SweepCommand(None, arguments, str(tmp_path)), str(tmp_path))


def test_a_saved_command_with_a_chain_of_references_is_refused(tmp_path):
    chain = [f"+monitors.m{n + 1}='${{monitors.m{n}}}${{monitors.m{n}}}${{monitors.m{n}}}'" for n in range(7)]
    with pytest.raises(UserError, match="more than 20 times"):
        plan_saved_command(SweepCommand(None, ["+monitors.m0=x", *chain], str(tmp_path)), str(tmp_path))
