"""Reading the runs of a folder from their records, and finding the settings in which they differ."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest
from helpers import make_config, make_record
from waiting import wait_until

from isobench.runs.folder import RunFolder
from isobench.runs.grouping import find_varying_settings, flatten_settings, read_setting
from isobench.runs.plan import read_runs
from isobench.runs.run import Run
from isobench.runs.state import is_process_alive

CONFIGS = [
    ["seed=3"],
    ["task=stsb", "task.as_classes=6", "calibration=isobn_paper"], ["task=multi30k", "encoder=bart-scratch"],
    ["calibration=[isobn_paper,cosine]", "optimization.clip=1.0"], ["output_dir='a: b # c'", "seeds.init=4"],
]  # fmt: skip


@pytest.mark.parametrize("overrides", CONFIGS, ids=" ".join)
def test_a_run_is_read_from_its_record_alone_and_equal_sections_are_one_object(tmp_path, overrides):
    for seed in (1, 2):
        cfg = make_config(*overrides, f"seed={seed}")
        RunFolder(str(tmp_path), str(seed) * 64).write_record(make_record(cfg, key=str(seed) * 64))
    first, second = read_runs(str(tmp_path))
    own = make_config(*overrides, "seed=1")
    assert first.cfg == replace(own, output_dir=str(tmp_path), tracking=first.cfg.tracking)
    assert first.cfg.task is second.cfg.task


def test_settings_are_found_one_by_one_and_vary_also_where_sections_are_shared():
    rows = [Run(make_config(*overrides), None, None) for overrides in CONFIGS]
    for row in rows:
        settings = flatten_settings(row.cfg)
        assert {name: read_setting(row.cfg, name) for name in settings} == settings
    assert read_setting(rows[0].cfg, "task.generation.beams") == read_setting(rows[0].cfg, "calibration.x") == "-"
    cfg = rows[0].cfg
    others = [replace(cfg, seed=4), replace(cfg, optimization=replace(cfg.optimization, lr=1e-3))]
    assert find_varying_settings([Run(one, None, None) for one in (cfg, *others)]) == ["optimization.lr"]


NO_PROCESS = 2**22 + 1  # above the largest process id that Linux gives


def test_a_process_is_alive_until_it_ends_even_if_nobody_waited_for_it():
    assert is_process_alive(os.getpid())
    assert is_process_alive(1)  # another user's, or our own
    assert not is_process_alive(NO_PROCESS)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert is_process_alive(child.pid)
    assert child.stdin is not None
    child.stdin.close()
    wait_until(lambda: not is_process_alive(child.pid))  # a zombie: it has ended, and has not been waited for
    child.wait()
    assert not is_process_alive(child.pid)
