"""A study like isotropy_dial with made-up records: its planted slopes and correlations are known."""

import functools
import itertools
import types

import numpy as np
from helpers import make_composer, make_record, read_experiment

from isobench.runs.folder import RunFolder
from isobench_papers.isotropy_dial.rows import DIALS, MEASURES

SEEDS = range(1, 7)
DOSES = {
    "isobn": [0, 0.125, 0.25, 0.375, 0.5, 0.75, 1], "istar": [*range(-5, 6)], "cosine": [*range(7)],
    "whitening": [*range(7)],
}  # fmt: skip
SLOPES = {"isobn": 2.0, "istar": -0.5, "cosine": 0.0, "whitening": 0.8}


@functools.cache
def compose_configs():
    grid = read_experiment("isotropy_dial")["experiment"]["grid"]["embedded"]
    runs = [
        [f"{key}={value}" for key, value in zip(part, values, strict=True)]
        for part in grid
        for values in itertools.product(*part.values())
    ]
    return [make_composer().compose(["+experiment=isotropy_dial", *run]) for run in runs]


class Study:
    def __init__(self, tmp_path, seeds=SEEDS, noise=0.2):
        configs = compose_configs()
        self.folder, self.noise, self.rng = RunFolder(str(tmp_path), "key"), noise, np.random.default_rng(0)
        self.levels = {seed: self.rng.normal(70, 5) for seed in seeds}
        chosen = [c for c in configs if c.seed in seeds and c.encoder.name == configs[0].encoder.name]
        self.record = make_record(chosen[0])
        self.subjects = [self.make_subject(cfg) for cfg in chosen]

    def make_subject(self, cfg):
        dose, slope, turned = next(
            (dose, SLOPES[dial.name], dial.name)
            for dial in DIALS
            if (dose := dial.read_dose(cfg.calibration)) is not None
        )
        score = (self.levels[cfg.seed] + slope * dose + self.rng.normal(0, self.noise)) / 100
        values = {name: self.rng.normal() for name in MEASURES}
        values["embedding/ev1"] = 0.5 + 0.1 * dose if turned != "cosine" else 0.5  # follows the dose
        values["embedding/i1"] = score  # follows the score
        metrics = dict.fromkeys((cfg.task.primary, "f1"), score)
        epoch = types.SimpleNamespace(score=score, isotropy=values, metrics=lambda _: metrics)
        about = {"provenance": self.record.provenance, "cost": self.record.cost}
        record = types.SimpleNamespace(best=epoch, status="finished", **about)
        return types.SimpleNamespace(encoder="E", task="T", cfg=cfg, record=record, folder=self.folder)

    def find(self, dial, dose, seed):
        of_dial = next(one for one in DIALS if one.name == dial)
        (found,) = (s for s in self.subjects if s.cfg.seed == seed and of_dial.read_dose(s.cfg.calibration) == dose)
        return found
