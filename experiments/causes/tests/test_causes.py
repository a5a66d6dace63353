"""The bench of causes: what tells its runs apart, which learning rate is taken, its tests, its rows."""

import csv
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from helpers import WORDS, check_done, make_config, read_analysis_rows, read_experiment, read_records, write_parquet
from scipy import stats

from isobench.analyses.rows import read_stored_rows
from isobench_papers.causes import causes, in_torch

PRIMARY = causes.PRIMARY
STUDY = Path(__file__).parents[1]
OF_ADAM = [0.0003, 0.001, 0.003, 0.01]  # learning rates of registration.md
RATES = {"adamw": OF_ADAM, "coupled_adam": OF_ADAM, "sgd": [0.1, 0.3, 1, 3], "adafactor": [0.003, 0.01, 0.03, 0.1]}
LM = ["task=wikitext2", "encoder=gpt-scratch", "optimization=language"]


def test_the_grid_turns_every_registered_cause_once():
    grid = read_experiment("causes")["experiment"]["grid"]["embedded"]
    names = []
    for part in grid:
        turned = {key: values for key, values in part.items() if key not in (*grid[0], "optimization.epochs")}
        overrides = [f"{key}={str(value).lower()}" for key, values in turned.items() for value in values]
        rates = RATES[part.get("optimizer", ["adamw"])[0]]
        assert (part["optimization.lr"], part["seed"]) == (rates, [1, 2, 3, 4, 5])
        names += [causes.name_cause(make_config(*LM, override)) for override in overrides] or [causes.BASE]
    assert len(names) == len(set(names)) == 12
    assert {cause for cause, _ in causes.PREDICTED} < set(names)


def make_runs(effect):
    rng = np.random.default_rng(0)
    rows = []
    for cause, change in (("base", 0.0), ("coupled Adam", effect), ("untied", 0.0)):
        for lr, loss in ((0.001, 5.0), (0.01, 4.0)):
            for seed in range(1, 6):
                about = {"cause": cause, "lr": lr, "seed": seed, "state": "finished"}
                row = dict.fromkeys(causes.MEASURES, 0.0) | about | {"loss": loss + rng.normal(0, 0.01)}
                row |= {name: 0.4 + rng.normal(0, 0.01) + change * (lr == 0.01) for name in causes.PRIMARY}
                rows.append(row)
    return rows


def find(effects):
    return next(row for row in effects if (row["cause"], row["measure"]) == ("coupled Adam", "head/average_cosine"))


def test_the_rate_with_the_smallest_loss_is_taken():
    runs = make_runs(0.0)
    chosen = {row["cause"]: row for row in causes.choose_rates(runs)}
    assert {row["lr"] for row in chosen.values()} == {0.01}
    assert chosen["base"]["edge"]
    runs[5] |= {"loss": float("nan"), "state": "failed"}  # of the base at 0.01
    assert {row["cause"]: row["lr"] for row in causes.choose_rates(runs)}["base"] == 0.001


def test_a_study_that_was_stopped_is_of_its_whole_seeds():
    runs = make_runs(-0.2)
    for row in runs:
        if row["seed"] > 3 and row["lr"] == 0.01:
            row |= dict.fromkeys(causes.MEASURES, float("nan")) | {"state": "missing"}
    chosen = causes.choose_rates(runs)
    assert {(row["lr"], tuple(row["seeds"])) for row in chosen} == {(0.01, (1, 2, 3))}
    effects = causes.compare(runs, chosen)
    assert find(effects)["seeds"] == 3


@pytest.mark.parametrize(("effect", "verdict"), [(-0.2, "supported"), (0.2, "refuted"), (0.0, "can't tell")])
def test_changes_are_paired_and_judged_by_the_registration(effect, verdict):
    runs = make_runs(effect)
    effects = causes.compare(runs, causes.choose_rates(runs))
    row = find(effects)
    assert row["verdict"] == verdict
    values = {
        cause: [run["head/average_cosine"] for run in runs if run["cause"] == cause and run["lr"] == 0.01]
        for cause in ("base", "coupled Adam")
    }
    expected = stats.ttest_rel(values["coupled Adam"], values["base"])
    assert row["p"] == pytest.approx(expected.pvalue)
    assert row["value"] == pytest.approx(np.mean(values["coupled Adam"]) - np.mean(values["base"]))
    assert row["p_holm"] == pytest.approx(min(1, 11 * row["p"])) or not effect
    assert [row["cause"] for row in effects[:11]] == list(causes.CAUSES)
    assert all(not other["verdict"] for other in effects if other["cause"] == "untied")


def read_bundle():
    return read_stored_rows(STUDY / "results/causes/analysis", ["models", "rates", "effects"])


def average(rows, cause, lr, measure):
    own = [row[measure] for row in rows["models"] if (row["cause"], row["lr"]) == (cause, lr)]
    assert len(own) == 5
    return np.mean(own)


def test_the_page_has_the_benchs_numbers():
    rows = read_bundle()
    assert Counter(row["state"] for row in rows["models"]) == {"finished": 240}
    verdicts = {(row["cause"], row["measure"]): row["verdict"] for row in rows["effects"]}
    assert {verdicts[predicted] for predicted in causes.PREDICTED} == {"supported"}
    page = (STUDY / "README.md").read_text(encoding="utf-8")
    columns = causes.build_matched(rows["models"], rows["rates"]).columns
    for line in zip(*(column.cells for column in columns), strict=True):
        assert f"| {' | '.join(map(str, line))} |" in page


def test_plain_pytorch_gives_the_same_changes():
    with (STUDY / "in_torch.csv").open() as file:
        theirs = list(csv.DictReader(file))
    ours = read_bundle()
    names = {
        "loss": "loss", "vocabulary_cosine": "head/average_cosine", "states_cosine": "embedding/average_cosine",
        "vocabulary_isoscore": "head/isoscore",
    }  # fmt: skip
    rates = {cause: lr for cause, (lr, _) in in_torch.RUNS.items()}
    assert {row["cause"]: float(row["lr"]) for row in theirs} == rates

    def average_theirs(cause, name):
        own = [float(row[name]) for row in theirs if row["cause"] == cause]
        assert len(own) == 3
        return np.mean(own)

    for cause in rates.keys() - {"base"}:
        for name, measure in names.items():
            found = average_theirs(cause, name) - average_theirs("base", name)
            expected = average(ours, cause, rates[cause], measure) - average(ours, "base", rates["base"], measure)
            assert found == pytest.approx(expected, abs=0.05 if name == "loss" else 0.01)
            if abs(expected) > 0.003:
                assert found * expected > 0


@pytest.mark.slow
def test_the_experiment_runs_and_is_shown(cli, outputs, tmp_path):
    rng = np.random.default_rng(0)
    for split in ("train", "validation"):
        texts = [" ".join(rng.choice(WORDS, rng.integers(3, 20))) for _ in range(100)]
        write_parquet(tmp_path / f"wikitext/{split}.parquet", {"text": texts})
    out, _ = check_done(cli(
        "+experiment=causes", f"data.root={tmp_path}", f"data.cache={tmp_path / 'cache'}", "seed=1,2",
        "tracking=none", "optimization.lr=0.003", "optimization.epochs=1", f"output_dir={outputs}",
        "encoder.vocabulary_size=300", "task.max_length=16", "encoder.scratch.hidden_size=16",
        "encoder.scratch.word_embed_proj_dim=16", "encoder.scratch.ffn_dim=32",
    ))  # fmt: skip
    rows = read_analysis_rows(outputs, "causes")
    assert len(rows["rates"]) == 11  # SGD has other learning rates
    assert len(rows["effects"]) == 11 * len(causes.MEASURES)
    losses = sorted(record["best"]["validation"]["loss"] for record in read_records(outputs).values())
    assert sorted(row["loss"] for row in rows["models"]) == pytest.approx(losses)
    assert "coupled Adam lowers the vocabulary's average cosine" in out
