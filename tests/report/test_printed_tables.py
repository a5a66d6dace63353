"""Check the table that ends a sweep: its numbers against their definitions, and that no width cuts one."""

import re
import statistics
import sys
from dataclasses import replace

import pytest
from helpers import make_config, make_ended_run

from isobench.common.terminal import PlainConsole
from isobench.report.build import build_report
from isobench.report.output.terminal import print_table
from isobench.report.output.text import format_configuration
from isobench.runs.folder import RunFolder
from isobench.runs.run import Run


def make_row(score: float | None, *overrides: str, ev1=0.4, seconds=8.0, **kinds) -> Run:
    """Make a run of two epochs; ``seconds``: of training an epoch; a score of None is undefined."""
    isotropy = {"embedding/ev1": ev1, "embedding/isoscore": 0.02, "head/i1_printed": 0.5, "head/i2_printed": 0.1}
    cost = {"training_seconds": 2 * seconds}
    run = make_ended_run(score, *overrides, output_dir="outputs", isotropy=isotropy, cost=cost, **kinds)
    return replace(run, state="done")


def make_rows(*overrides: str, scores=(0.7, 0.72, 0.71), **parts) -> list[Run]:
    """Make runs of one configuration, with seeds 1, 2, ..."""
    return [make_row(score, *overrides, f"seed={seed}", **parts) for seed, score in enumerate(scores, 1)]


def make_demo() -> list[Run]:
    experiment = ("+experiment=glue_isobn", "task.train_samples=512")
    return [
        *make_rows(*experiment, "calibration=none", scores=(0.7619, 0.7619, 0.7655, 0.7583, 0.7679)),
        *make_rows(*experiment, "calibration=isobn_paper", scores=(0.7643, 0.7619, 0.756, 0.7607, 0.7726), ev1=0.2),
        *make_rows(*experiment, "calibration=isobn_released", scores=(0.7655, 0.756, 0.7512, 0.7667, 0.7702)),
    ]


def make_many_settings() -> list[Run]:
    rows = []
    for lr in (1e-5, 2e-5):
        for size in (16, 32):
            own = ("+experiment=glue_isobn", "task=sst2", f"optimization.lr={lr}", f"optimization.batch_size={size}")
            rows += make_rows(*own, "calibration=none")
            rows += make_rows(*own, "calibration=isobn_released", scores=(0.9, 0.91))
            rows += make_rows(*own, "calibration=isobn_released", "calibration.beta=0.25", scores=(0.9, 0.91))
    return rows


def summarize(rows) -> list[dict]:
    report = build_report(rows[0].cfg.experiment, rows, with_pairs=False)
    return [format_configuration(line) for line in report.configurations.itertuples()]


def print_at(width, monkeypatch, capfd, rows) -> str:
    terminal = PlainConsole(width=width, force_terminal=True, color_system=None)
    monkeypatch.setattr("isobench.report.output.terminal.make_console", lambda: terminal)
    capfd.readouterr()
    terminal.file = sys.stdout
    print_table(build_report(rows[0].cfg.experiment, rows, with_pairs=False), rows)
    return capfd.readouterr().out


@pytest.mark.parametrize(("case", "width"), [(make_demo, 80), (make_many_settings, 140)])
def test_the_table_fits_the_terminal_and_cuts_no_number(case, width, monkeypatch, capfd):
    rows = case()
    text = print_at(width, monkeypatch, capfd, rows)
    assert max(map(len, text.splitlines())) <= width
    numbers = re.findall(r"[-+]?\d+\.\d+x?", text)
    for line in summarize(rows):
        shown = [line[name] for name in ("mean", "SD", "change", "EV1", "IsoScore", "time")]
        assert {text.split()[0] for text in shown if re.search(r"\d\.\d", text)} <= set(numbers), line["name"]
    if case == make_many_settings:
        assert text.count("isobn_released (") == 1  # in the paper's table the chosen configuration
        assert text.count("isobn_released lr=") == 8
        assert len(re.findall(r"^isobn_released lr=.* yes ", text, re.MULTILINE)) == 1


def test_the_figures_are_means_of_the_runs_with_a_score():
    rows = make_demo()
    lines = summarize(rows)
    assert [line["name"] for line in lines] == ["plain", "isobn_paper", "isobn_released"]
    scores = [[100 * row.record.best.score for row in rows[start : start + 5]] for start in (0, 5, 10)]
    assert [line["mean"] for line in lines] == [f"{statistics.fmean(own):.2f}" for own in scores]
    assert [line["SD"] for line in lines] == [f"{statistics.stdev(own):.2f}" for own in scores]
    assert [line["change"] for line in lines] == ["-", "0.00", "-0.12"]  # ours less plain's
    assert [line["EV1"] for line in lines] == ["0.400", "0.200", "0.400"]
    assert {line["n"] for line in lines} == {"5"}
    assert lines[0]["scores"] == {seed: f"{score:.2f}" for seed, score in enumerate(scores[0], 1)}


def test_runs_without_a_usable_score_have_no_change():
    plain = make_rows("calibration=none", scores=(0.7, 0.8))
    plain.append(make_row(0.0, "calibration=none", "seed=3", failed="non_finite_loss"))
    constant = make_rows("calibration=flow", scores=(0.5, 0.5), constant=True)
    undefined = make_rows("calibration=cosine", scores=(0.9, None))
    running = Run(make_config("calibration=cosine", "seed=3"), RunFolder("outputs", "5" * 64), None, "running")
    figures = summarize([*plain, *constant, *undefined, running])
    assert [own["n"] for own in figures] == ["2/3", "2", "2/3"]
    assert [own["mean"] for own in figures] == ["75.00", "constant", "NaN"]
    assert [own["SD"] for own in figures] == ["7.07", "-", "-"]
    assert [own["change"] for own in figures] == ["-", "-", "-"]
