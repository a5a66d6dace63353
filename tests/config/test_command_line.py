"""Settings that Hydra would drop in silence are refused as they are typed."""

import pytest

from isobench.common.errors import UserError
from isobench.config.command_line import Override, check_typed_settings, expand_home_folders


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["seed=1", "seed=2"], "seed is given twice, as 1 and as 2: leave one out"),
        (["calibration=none", "-m", "calibration=isobn_paper,cosine"], "calibration is given twice"),
        (["+monitors.x=1", "++monitors.x=2"], "monitors.x is given twice"),
        (["+experiment=glue_isobn", "+experiment=isobn_ev"], "experiment is given twice"),
        (["+experiment=[glue_isobn,glue_calibration]"], "a run has one experiment: give each a command of its own"),
        (["task=[rte,sst2]"], "a run has one task: to run several, write -m task=A,B"),
        (["hydra/launcher=[local,slurm]"], "a run has one hydra/launcher"),
        (["data.files={train: a.csv, train: b.csv, validation: c.csv}"], "train is given twice: leave one out"),
    ],
)
def test_what_would_be_dropped_is_refused(arguments, message):
    with pytest.raises(UserError, match="(?s).*") as error:
        check_typed_settings(arguments)
    assert message in str(error.value)


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


def test_a_home_folder_of_nobody_is_refused():
    with pytest.raises(UserError, match="~nosuchuser/x: there is no home folder of ~nosuchuser"):
        expand_home_folders(Override.parse("output_dir=~nosuchuser/x"))
