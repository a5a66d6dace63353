"""Check the table that ends a sweep: its numbers against their definitions, its text on terminals of three widths."""

import re
import statistics

import pytest
from helpers import make_config, make_record

from isobench.common.terminal import PlainConsole
from isobench.config.schema import Experiment
from isobench.data.scale import find_scale_differences
from isobench.report.sweep_layout import lay_out_lines
from isobench.report.sweep_lines import SweepLine, build_lines
from isobench.report.sweep_table import print_table
from isobench.runs.folder import RunFolder
from isobench.runs.row import Row

COLUMNS = ("n", "median", "SD", "change", "EV_1", "IsoScore", "time")
GLUE = ("rte", "sst2", "mrpc", "cola", "qnli", "mnli", "wnli")
CALIBRATIONS = (
    "none", "cosine", "spectrum_polynomial", "spectrum_exponential", "spectrum_polynomial_collapsed",
    "spectrum_exponential_collapsed", "flow",
)  # fmt: skip


def make_row(
    score: float | None, *overrides: str, ev1=0.4, isoscore=0.02, seconds=8.0, failure=None, constant=False
) -> Row:
    """Make a run of two epochs; ``seconds``: of training an epoch; a score of None is undefined."""
    cfg = make_config("output_dir=outputs", "data.root=null", *overrides)
    metrics = dict.fromkeys(cfg.task.metrics, score) | {"constant_predictor": constant}
    isotropy = {"embedding/ev1": ev1, "embedding/isoscore": isoscore, "head/i1_printed": 0.5, "head/i2_printed": 0.1}
    best = {"epoch": 2, "step": 64, "score": score or 0.0, "selection": score or 0.0, "isotropy": isotropy}
    best[cfg.task.dev_splits[0]] = metrics
    record = make_record(
        cfg,
        best=None if failure else best,
        history=[] if failure else [best],
        failure={"name": failure, "message": "as meant"} if failure else None,
        cost={"training_seconds": 2 * seconds},
        scale={"name": cfg.scale, "differs": find_scale_differences(cfg)},
    )
    return Row(cfg, RunFolder("outputs", "-".join(overrides).encode().hex()[-64:].ljust(64, "0")), record, "done")


def make_rows(*overrides: str, scores=(0.7, 0.72, 0.71), **parts) -> list[Row]:
    """Make runs of one configuration, with seeds 1, 2, ..."""
    return [make_row(score, *overrides, f"seed={seed}", **parts) for seed, score in enumerate(scores, 1)]


def make_demo() -> tuple[Experiment, list[Row]]:
    experiment = ("+experiment=glue_isobn", "task.train_samples=512")
    rows = [
        *make_rows(*experiment, "calibration=none", scores=(0.7619, 0.7619, 0.7655, 0.7583, 0.7679)),
        *make_rows(*experiment, "calibration=isobn_paper", scores=(0.7643, 0.7619, 0.756, 0.7607, 0.7726), ev1=0.2),
        *make_rows(*experiment, "calibration=isobn_released", scores=(0.7655, 0.756, 0.7512, 0.7667, 0.7702)),
    ]
    return rows[0].cfg.experiment, rows


def make_betas() -> tuple[Experiment, list[Row]]:
    rows = make_rows("calibration=none")
    for beta in (0.25, 0.5):
        rows += make_rows("calibration=isobn_paper", f"calibration.beta={beta}", seconds=10.0)
    return Experiment(), rows


def make_many_settings() -> tuple[Experiment, list[Row]]:
    rows = []
    for lr in (1e-5, 2e-5):
        for size in (16, 32):
            own = ("+experiment=glue_isobn", "task=sst2", f"optimization.lr={lr}", f"optimization.batch_size={size}")
            rows += make_rows(*own, "calibration=none")
            rows += make_rows(*own, "calibration=isobn_released", scores=(0.9, 0.91))
            rows += make_rows(*own, "calibration=isobn_released", "calibration.beta=0.25", scores=(0.9, 0.91))
    return rows[0].cfg.experiment, rows


def make_tasks() -> tuple[Experiment, list[Row]]:
    rows = []
    for task in GLUE:
        for method in CALIBRATIONS:
            own = ("+experiment=glue_calibration", f"task={task}", "encoder=bert-base-cased", f"calibration={method}")
            collapsed = method.endswith("collapsed")
            rows += make_rows(*own, constant=collapsed, seconds=30.5 if method == "flow" else 8.0)
    return rows[0].cfg.experiment, rows


def make_translation() -> tuple[Experiment, list[Row]]:
    rows = []
    for method in CALIBRATIONS[:4]:
        own = ("+experiment=mt_calibration", "task=captions", "encoder=bart-scratch", f"calibration={method}")
        rows += make_rows(*own, scores=(0.5, 0.6, 0.71))
    return rows[0].cfg.experiment, rows


def make_troubled() -> tuple[Experiment, list[Row]]:
    rows = make_rows("calibration=none", scores=(0.7, 0.72))
    rows.append(make_row(0.0, "calibration=none", "seed=3", failure="non_finite_loss"))
    rows += make_rows("calibration=isobn_paper", scores=(0.7, 0.9))
    rows.append(
        Row(make_config("calibration=isobn_paper", "seed=3"), RunFolder("outputs", "5" * 64), None, "running")
    )
    return Experiment(), rows


def make_data_sets() -> tuple[Experiment, list[Row]]:
    rows = []
    for head in ("isobn", "huggingface"):
        for method in ("none", "spectrum_exponential_collapsed"):
            rows += make_rows(f"head={head}", f"calibration={method}")
    return Experiment(), rows


def make_single() -> tuple[Experiment, list[Row]]:
    return Experiment(), [make_row(0.75, "calibration=isobn_paper", "seed=4")]


CASES = (
    make_demo, make_betas, make_many_settings, make_tasks, make_translation, make_troubled, make_data_sets,
    make_single,
)  # fmt: skip


def print_at(width, monkeypatch, capfd, experiment, rows, candidates=()) -> str:
    monkeypatch.setattr("isobench.report.sweep_table.make_console", lambda: make_terminal(width))
    capfd.readouterr()
    print_table(experiment, rows, candidates)
    return capfd.readouterr().out


def list_words(text: str) -> set[str]:
    return {word.strip(".").lower() for word in re.findall(r"[\w.]+", text)}


def make_terminal(width: int) -> PlainConsole:
    return PlainConsole(width=width, force_terminal=True, no_color=True, color_system=None)


@pytest.mark.parametrize("width", [80, 100, 140])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_table_fits_the_terminal_and_breaks_no_word(case, width, monkeypatch, capfd):
    experiment, rows = case()
    wide = print_at(1000, monkeypatch, capfd, experiment, rows)
    text = print_at(width, monkeypatch, capfd, experiment, rows)
    assert max(map(len, text.splitlines())) <= width
    more = "each run's score is in runs.csv beside the report's page".split()  # in place of a column
    assert list_words(text) <= list_words(wide) | list_words(" ".join(more))
    headings = [line for line in text.splitlines() if re.match(r"(task|encoder|head|method)\b.* n ", line)]
    assert headings
    shown = set(COLUMNS) if case is not make_single else {"n", "median", "EV_1", "IsoScore", "time"}
    assert all(shown <= set(line.split()) for line in headings)


def test_the_figures_are_medians_of_the_runs_with_a_score():
    _, rows = make_demo()
    lines = build_lines(rows)
    assert [line.name() for line in lines] == ["plain", "isobn_paper", "isobn_released"]
    scores = [[100 * row.record.best.score for row in line.runs] for line in lines]
    medians = [statistics.median(own) for own in scores]
    assert [line.figures["median"] for line in lines] == [f"{median:.2f}" for median in medians]
    assert [line.figures["SD"] for line in lines] == [f"{statistics.stdev(own):.2f}" for own in scores]
    assert [line.figures["change"] for line in lines] == ["-", "0.00", "+0.36"]
    assert [line.figures["EV_1"] for line in lines] == ["0.400", "0.200", "0.400"]
    assert {line.figures["n"] for line in lines} == {"5"}


def test_a_method_is_compared_with_plain_of_the_same_settings():
    _, rows = make_betas()
    lines = build_lines(rows)
    assert [line.figures["time"] for line in lines] == ["8.0 s", "1.25x", "1.25x"]
    assert [line.figures["change"] for line in lines] == ["-", "0.00", "0.00"]
    tuned = [
        *make_rows("calibration=none", "optimization.lr=1e-5", scores=(0.5, 0.5)),
        *make_rows("calibration=none", "optimization.lr=2e-5", scores=(0.6, 0.6)),
        *make_rows("calibration=isobn_paper", "optimization.lr=2e-5", scores=(0.7, 0.7)),
        *make_rows("calibration=isobn_paper", "optimization.lr=3e-5", scores=(0.9, 0.9)),
    ]
    assert [line.figures["change"] for line in build_lines(tuned)] == ["-", "-", "+10.00", "-"]


@pytest.mark.parametrize("override", ["task.train_samples=64", "head=huggingface", "task=sst2", "encoder=gpt2"])
def test_runs_of_another_part_are_not_compared(override):
    rows = [*make_rows("calibration=none"), *make_rows("calibration=isobn_paper", override, scores=(0.9, 0.8))]
    assert [line.figures["change"] for line in build_lines(rows)] == ["-", "-"]


def test_runs_without_a_usable_score_are_counted_and_named(monkeypatch, capfd):
    experiment, rows = make_troubled()
    lines = build_lines(rows)
    assert [line.figures["n"] for line in lines] == ["2/3", "2/3"]
    assert lines[0].figures["median"] == "71.00"
    text = print_at(80, monkeypatch, capfd, experiment, rows)
    assert "1 non_finite_loss: plain.\n" in text
    assert "1 running: isobn_paper.\n" in text
    assert "70.00  72.00  non_finite_loss" in text
    missing = [Row(row.cfg, row.folder, None) for row in rows]
    text = print_at(80, monkeypatch, capfd, experiment, missing)
    assert "6 missing: plain, isobn_paper." in text
    assert "recorded" not in text


def test_constant_predictors_and_undefined_scores_have_no_change():
    plain = make_rows("calibration=none", scores=(0.7, 0.8))
    constant = make_rows("calibration=flow", scores=(0.5, 0.5), constant=True)
    undefined = make_rows("calibration=cosine", scores=(0.9, None))
    figures = [line.figures for line in build_lines([*plain, *constant, *undefined])]
    assert [own["median"] for own in figures] == ["75.00", "constant", "NaN"]
    assert [own["SD"] for own in figures] == ["7.07", "-", "-"]
    assert [own["change"] for own in figures] == ["-", "-", "-"]


def test_every_seed_is_beside_its_line_where_there_is_room_and_below_elsewhere(monkeypatch, capfd):
    experiment, rows = make_demo()
    wide, narrow = (print_at(width, monkeypatch, capfd, experiment, rows) for width in (100, 80))
    assert "seeds 1, 2, 3, 4, 5\n" in wide
    assert re.search(r"plain .* 76.19  76.19  76.55  75.83  76.79\n", wide)
    assert "Seeds 1, 2, 3, 4, 5:\n  plain           76.19  76.19  76.55  75.83  76.79\n" in narrow
    experiment, rows = make_tasks()
    assert "each run's score is in runs.csv" in print_at(80, monkeypatch, capfd, experiment, rows)
    uneven = [*make_rows("calibration=none"), *make_rows("calibration=isobn_paper", scores=(0.9,))]
    assert "Every seed:\n  plain        1: 70.00  2: 72.00" in print_at(60, monkeypatch, capfd, Experiment(), uneven)


def test_settings_that_all_lines_share_are_in_the_title(monkeypatch, capfd):
    text = print_at(80, monkeypatch, capfd, *make_demo())
    assert text.splitlines()[0] == "glue_isobn: rotten_tomatoes (accuracy), minilm"
    assert text.count("rotten_tomatoes") == 2  # in the title, and as a difference of scale
    text = print_at(80, monkeypatch, capfd, *make_single())
    assert text.splitlines()[0] == "runs: rotten_tomatoes (accuracy), minilm, seed 4"
    assert "Every seed" not in text


def test_tasks_are_sections_of_a_narrow_terminal_and_a_column_of_a_wide_one(monkeypatch, capfd):
    _, rows = make_tasks()
    narrow = lay_out_lines(build_lines(rows), 80)
    assert [section.name for section in narrow.sections] == [f"{task} ({metric})" for task, metric in (
        ("rte", "accuracy"), ("sst2", "accuracy"), ("mrpc", "accuracy"), ("cola", "matthews"), ("qnli", "accuracy"),
        ("mnli", "accuracy"), ("wnli", "accuracy"),
    )]  # fmt: skip
    assert not narrow.omitted
    (only,) = lay_out_lines(build_lines(rows), 140).sections
    assert only.texts[0].split()[:2] == ["task", "method"]
    assert len(only.texts) == 2 + len(GLUE) * len(CALIBRATIONS)


def test_a_very_narrow_terminal_says_what_it_leaves_out(monkeypatch, capfd):
    text = print_at(40, monkeypatch, capfd, *make_demo())
    assert max(map(len, text.splitlines())) <= 40
    words = " ".join(text.split())
    left_out = re.search(r"Left out in 40 columns: ([\w, ]+); the report has them", words)
    assert left_out
    heading = next(line for line in text.splitlines() if line.startswith("method"))
    assert set(left_out[1].split(", ")) | set(heading.split()[1:]) == set(COLUMNS)
    assert "median" in heading


def test_what_the_paper_printed_is_said_where_its_table_has_no_place(monkeypatch, capfd):
    text = print_at(80, monkeypatch, capfd, *make_many_settings())
    words = " ".join(text.split())
    assert "Published, sst2, bert-base-cased: plain 92.43 (0.7), isobn_released 92.54 (0.1)." in words
    assert "The paper's table is left out" in words
    _, rows = make_tasks()
    text = print_at(140, monkeypatch, capfd, rows[0].cfg.experiment, rows)
    assert "[91.44" in text
    assert "not in the paper" not in text.split("table4")[0]


def test_a_setting_may_have_the_name_of_a_column():
    lines = [
        SweepLine([], {"task": "a"}, "mine", {"n": size, "time": "7"}, False, dict.fromkeys(COLUMNS, "1.5"))
        for size in ("2", "4")
    ]
    heading, _, first, second = lay_out_lines(lines, 100).sections[0].texts[:4]
    assert heading.split() == ["method", "n", "time", *COLUMNS, "seeds"]
    assert [first.split()[:3], second.split()[:3]] == [["mine", "2", "7"], ["mine", "4", "7"]]


def test_a_method_and_its_settings_go_on_below_where_they_have_little_room():
    settings = {"learning_rate": "1e-05", "batch_size": "16", "momentum": "0.95"}
    line = SweepLine([], {"task": "a"}, "spectrum", settings, False, dict.fromkeys(COLUMNS, "1.5"))
    table = lay_out_lines([line], 60)
    assert table.sections[0].texts == [
        "method                n median  SD change EV_1 IsoScore time",
        "-" * 60,
        "spectrum            1.5    1.5 1.5    1.5  1.5      1.5  1.5",
        "  learning_rate=1e-05",
        "  batch_size=16",
        "  momentum=0.95",
    ]


def test_the_chosen_values_have_a_column(monkeypatch, capfd):
    _, candidates = make_betas()
    selected = [row for row in candidates if row.cfg.calibration.get("beta") != 0.25]
    text = print_at(80, monkeypatch, capfd, Experiment(), selected, candidates)
    assert re.search(r"^method +chosen +n ", text, re.MULTILINE)
    assert re.search(r"^isobn_paper +beta=0.5 +3 ", text, re.MULTILINE)


def test_a_method_without_isotropy_says_so(monkeypatch, capfd):
    rows = make_rows("calibration=none", ev1=None, isoscore=None)
    text = print_at(80, monkeypatch, capfd, Experiment(), rows)
    assert "EV_1 and IsoScore were not recorded." in text
    assert "EV_1" not in text.splitlines()[1]
