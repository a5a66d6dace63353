"""The design of the dose-response study: its grid, its doses, its order, what is complete and what is refused."""

import copy
import itertools
import types

import pytest
from dial_study import DOSES, Study, compose_configs
from helpers import fails

from isobench.sweep.planning import find_places
from isobench_papers.isotropy_dial import analysis as dial_analysis
from isobench_papers.isotropy_dial.design import (
    describe_progress,
    keep_grid_runs,
    list_complete,
    list_grid_runs,
    measure_progress,
    refuse_mixed_settings,
)
from isobench_papers.isotropy_dial.rows import DIAL, DIALS, build_rows, collect_series

GROUP = ("E", "T")


@pytest.fixture
def whole(tmp_path):
    return Study(tmp_path, range(1, 11))


def test_the_grid_has_every_dose_of_every_dial_with_ten_seeds_and_two_encoders_in_order():
    configs = compose_configs()
    assert len(configs) == len({repr((c.seed, c.encoder.name, c.calibration)) for c in configs}) == 600
    for dial in DIALS:
        found = [(c.encoder.name, dial.read_dose(c.calibration), c.seed) for c in configs]
        encoders, doses = {c.encoder.name for c in configs}, DOSES.get(dial.name, ())
        wanted = itertools.product(sorted(encoders), doses, range(1, 11))
        assert sorted(run for run in found if run[1] is not None) == list(wanted)
    about = {(c.task.name, c.task.train_samples, c.evaluation.every) for c in configs}
    assert about == {("rotten_tomatoes", 512, "last")}
    settings = {(o.epochs, o.lr, o.batch_size, o.patience, o.report) for o in (c.optimization for c in configs)}
    assert settings == {(2, 1e-4, 16, None, "last")}
    rows = [types.SimpleNamespace(cfg=cfg, folder=types.SimpleNamespace(key=i)) for i, cfg in enumerate(configs)]
    places = find_places(configs[0].experiment.order, rows)
    started = [rows[i].cfg for i in sorted(places, key=places.__getitem__)]
    names = dict.fromkeys(c.encoder.name for c in configs)
    wanted = itertools.product(names, range(1, 11), range(30))
    assert [(c.encoder.name, c.seed) for c in started] == [run[:2] for run in wanted]


def test_only_the_dials_own_settings_are_its_doses():
    isobn, _, cosine, whitening, kept, difference = DIALS
    epsilons = [0.0, 1e-4, 1e-3, 0.01, 0.1, 1, 10]
    method = {"name": "whitening_zca", "shrinkage": 0.0}
    assert [whitening.read_dose({**method, "epsilon": e}) for e in epsilons] == list(range(7))
    assert whitening.read_dose({**method, "epsilon": 1.0, "shrinkage": 0.01}) is None
    assert whitening.read_dose({**method, "epsilon": 1.0, "keep_norm": True}) is None
    assert kept.read_dose({**method, "epsilon": 1.0, "keep_norm": True}) == 5
    assert difference.read_dose(method) is None
    assert cosine.read_dose({"name": "cosine", "target": "head", "strength": 1.0}) is None
    assert [dial.read_dose({"name": "none"}) for dial in DIALS] == [0, 0, 0, None, None, None]
    chain = {"name": "isobn_paper", "beta": 0.5, "then": {"name": "cosine"}}
    assert isobn.read_dose(chain) is None


def describe(subjects):
    return describe_progress(measure_progress(subjects))


def keep(subjects):
    grid = list_grid_runs(subjects[0].cfg)
    return keep_grid_runs(build_rows(subjects), grid, list_complete(measure_progress(subjects)))


def test_a_study_is_complete_if_all_runs_of_the_experiments_own_grid_have_ended(whole):
    assert list_complete(measure_progress(whole.subjects)) == [GROUP]
    assert describe(whole.subjects) == ["E, T: 300 of 300 runs finished."]
    whole.find("istar", 4, 5).record.status = "failed"
    assert list_complete(measure_progress(whole.subjects)) == [GROUP]
    assert describe(whole.subjects) == ["E, T: 299 of 300 runs finished, 1 failed."]
    whole.find("istar", 4, 6).record = None
    assert list_complete(measure_progress(whole.subjects)) == []
    assert describe(whole.subjects) == ["E, T: INCOMPLETE: 298 of 300 runs finished, 1 failed."]


def test_runs_that_were_added_to_a_complete_grid_are_left_out(whole):
    added = copy.deepcopy(whole.find("isobn", 1.0, 3))
    added.cfg.calibration["beta"] = 0.9
    rows = keep([*whole.subjects, added])
    assert [collect_series(rows, DIAL[name]).doses for name in DOSES] == list(DOSES.values())
    whole.find("istar", 4, 6).record = None
    rows = keep([*whole.subjects, added])
    assert 0.9 in {row["dose"] for row in rows}


def change(subject, section, **settings):
    subject.cfg = copy.deepcopy(subject.cfg)
    for name, value in settings.items():
        if section == "calibration":
            subject.cfg.calibration[name] = value
        else:
            setattr(getattr(subject.cfg, section), name, value)


def test_runs_with_other_settings_are_refused_and_the_setting_is_named(study):
    refuse_mixed_settings(study.subjects)
    again = copy.copy(study.find("isobn", 0.5, 2))
    change(again, "seeds", order=9)
    with fails():
        refuse_mixed_settings([*study.subjects, again])
    change(again, "seeds", order=None)
    change(again, "task", train_samples=1000)
    with fails():
        dial_analysis.compute([*study.subjects, again])
    again.task = "T train_samples=1000"  # another task, as isobench.analyses.rows calls it
    refuse_mixed_settings([*study.subjects, again])
    one = study.find("cosine", 3, 4)
    change(one, "optimization", lr=1e-5)
    with fails():
        refuse_mixed_settings(study.subjects)
    change(one, "optimization", lr=1e-4)
    of_istar = study.find("istar", 2, 1)
    name = next(key for key in of_istar.cfg.calibration if key not in ("name", "_target_", "strength"))
    change(of_istar, "calibration", **{name: 0.123})
    with fails():
        refuse_mixed_settings(study.subjects)
