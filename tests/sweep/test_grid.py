"""Settings on the command line of a sweep: each planned run has one of the values typed, or the sweep is refused."""

import itertools

import pytest
import yaml
from helpers import fails

from isobench.config.command_line import Override
from isobench.papers.folders import find_config
from isobench.sweep.grid import expand_grid
from isobench.sweep.planning import compose_sweep, plan_runs

GRID = [
    {"calibration": ["none"], "task": ["rte", "mnli"]},
    {"calibration": ["isobn"], "task": ["rte"], "calibration.beta": [0.5, 1.0], "lr": [1, 2]},
    {"calibration": ["cosine"], "task": ["mnli"], "task.primary": ["f1"], "batch": [16]},
]


def typed(**settings):
    return {key: [Override(key, str(value)) for value in values] for key, values in settings.items()}


@pytest.mark.parametrize(
    ("settings", "count"),
    [
        ({}, 2 + 4 + 1),
        ({"calibration": ["isobn"]}, 4),  # in one sub-grid only: chosen with its settings
        ({"calibration": ["isobn"], "calibration.beta": [0.1]}, 2),  # replaces the sub-grid's values
        ({"calibration": ["other"]}, 3),  # in no sub-grid: takes those without settings of a method
        ({"calibration": ["other"], "calibration.beta": [0.1, 0.2, 0.3]}, 9),  # and the setting multiplies it
        ({"calibration": ["none", "cosine"], "task": ["mnli"]}, 2),
        ({"lr": [7, 8]}, 2 * (2 + 2 + 1)),  # an axis of one sub-grid: replaces it there and multiplies the others
        ({"lr": [7], "batch": [8, 9], "seed": [1, 2, 3]}, 2 * 3 * (2 + 2 + 1)),  # axes of different sub-grids
        ({"calibration": ["isobn"], "task": ["mnli"]}, None),  # no sub-grid has both
        ({"calibration": ["none", "isobn"], "task": ["rte", "mnli"]}, None),  # the runs would lack mnli with isobn
        ({"calibration": ["none", "cosine"], "task": ["other"]}, None),
    ],
)
def test_every_run_has_a_value_of_every_setting_and_every_combination_is_there(settings, count):
    command_line = typed(**settings)
    if count is None:
        with fails():
            expand_grid(GRID, command_line | typed(seed=[1]))
        return
    runs = expand_grid(GRID, command_line)
    assert len(runs) == count
    for run in runs:
        for key, overrides in command_line.items():
            assert [override for override in run if override.key == key] in [[override] for override in overrides]
    for combination in itertools.product(*command_line.values()):
        assert any(set(combination) <= set(run) for run in runs)


VARIANTS = ["isobn_paper", "isobn_released"]


def plan(*arguments):
    with compose_sweep(["tracking=none", "data.root=null", "-m", *arguments]) as parts:
        return [run.cfg for run in plan_runs(*parts)]


def test_isobn_as_released_has_the_papers_betas_at_paper_scale():
    experiment = yaml.safe_load(find_config("experiment", "glue_isobn").read_text())["experiment"]
    runs = expand_grid(experiment["grid"]["paper"], typed(seed=[1, 2, 3, 4, 5]))
    assert len(runs) == 2940
    methods = {name: Override("calibration", name) for name in VARIANTS}
    settings = {name: [{*run} - {method} for run in runs if method in run] for name, method in methods.items()}
    assert settings["isobn_paper"] == settings["isobn_released"]
    assert len(settings["isobn_paper"]) == 2 * 7 * 3 * 3 * 2 * 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["calibration=none,isobn_paper", "calibration.beta=0.25,0.5"], [None, 0.25, 0.5]),
        (["calibration=none,isobn_released,isobn_paper", "calibration.beta=0.3,0.4"], [None, 0.3, 0.4, 0.3, 0.4]),
        (["+experiment=glue_isobn", "calibration.beta=0.3,0.4"], [None, 0.3, 0.4, 0.3, 0.4]),
        (["optimization.lr=0.003,3e-3,0.0030"], [None]),  # equal values are one run
        (["calibration=isobn_paper", "calibration.beta=1,1.0"], [1]),
    ],
)
def test_a_methods_setting_multiplies_with_the_methods_that_have_it(arguments, expected):
    assert [cfg.calibration.get("beta") for cfg in plan(*arguments)] == expected


@pytest.mark.slow
def test_settings_of_two_methods_and_of_a_chain_go_to_their_own():
    both = plan("calibration=isobn_paper,cosine", "calibration.beta=0.3,0.4", "calibration.strength=1,2,3")
    assert [cfg.calibration.get("beta", cfg.calibration.get("strength")) for cfg in both] == [0.3, 0.4, 1, 2, 3]
    chain = plan("calibration=[isobn_paper,cosine]", "calibration.then.strength=2", "calibration.beta=0.3,0.4")
    assert [(cfg.calibration["beta"], cfg.calibration["then"]["strength"]) for cfg in chain] == [(0.3, 2), (0.4, 2)]
