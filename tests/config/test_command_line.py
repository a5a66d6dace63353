"""Settings that Hydra would drop in silence are refused as they are typed."""

import pytest

from isobench.common.errors import UserError
from isobench.config.command_line import Override, check_typed_settings, expand_home_folders


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


def test_a_folder_whose_configs_would_not_be_read_is_refused(tmp_path, monkeypatch):
    (tmp_path / "task").mkdir()
    check_typed_settings([f"--config-dir={tmp_path}"])
    with pytest.raises(UserError):
        check_typed_settings([f"--config-dir={tmp_path}/task"])
    monkeypatch.chdir(tmp_path / "task")
    with pytest.raises(UserError):
        check_typed_settings(["--config-dir=."])


def test_what_is_kept_is_not_refused():
    check_typed_settings(["seed=1", "seed=1", "-m", "~optimization.clip", "calibration=[isobn_paper,cosine]"])
    check_typed_settings(["task=rte", "task.name=mine", "task.dev_splits=[a]", "--config-dir=/", "--config-dir=/tmp"])


@pytest.mark.parametrize(
    ("setting", "expanded"),
    [
        ("encoder.path=~/model", "encoder.path='/home/me/model'"),
        ("output_dir='~/out'", "output_dir='/home/me/out'"),
        ('data.root="~/my data"', "data.root='/home/me/my data'"),
        ("encoder.path=~/a,~/b", "encoder.path='/home/me/a','/home/me/b'"),
        ("data.files={train: ~/a.csv, dev:~/b}", "data.files={train: '/home/me/a.csv', dev:'/home/me/b'}"),
        ("output_dir=~", "output_dir='/home/me'"),
        ("encoder.path=/a~/b", "encoder.path=/a~/b"),
        ("tracking.label=~/a", "tracking.label=~/a"),
    ],
)
def test_the_home_folder_is_written_out_where_a_shell_leaves_it(monkeypatch, setting, expanded):
    monkeypatch.setenv("HOME", "/home/me")
    assert str(expand_home_folders(Override.parse(setting))) == expanded
