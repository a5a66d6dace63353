"""A paper's table in its own form, from made-up records: what a reader would check by hand."""

import io
import math

import pytest
from helpers import make_config, make_record
from scipy import stats

from isobench.common.terminal import PlainConsole
from isobench.papers import published
from isobench.report.old_build import build_cell
from isobench.report.paper_columns import (
    SCORE_KIND,
    build_foreign_columns,
    build_paper_columns,
    compute_epoch_seconds,
)
from isobench.report.paper_table import PaperTable
from isobench.report.paper_terminal import build_terminal_tables, print_paper_tables
from isobench.report.run_notes import describe_epoch_rule
from isobench.report.tidy_rows import build_epoch_columns, build_run_rows
from isobench.runs.folder import RunFolder
from isobench.runs.grouping import find_varying_settings
from isobench.runs.record import Failure
from isobench.runs.row import Row
from isobench.statistics.seeds import compute_cell_statistics, holm, welch


def row(score, *overrides, constant=False, seconds=10.0, failed=None, metric="accuracy", i1=0.9) -> Row:
    cfg = make_config(*overrides)
    split = {metric: score, "constant_predictor": constant}
    number = score or 0.0
    best = {
        "epoch": 1,
        "step": 1,
        "score": number,
        "selection": number,
        cfg.task.dev_splits[0]: split,
        "isotropy": {"head/i1_printed": i1},
    }
    if len(cfg.task.dev_splits) > 1:
        best[cfg.task.dev_splits[1]] = {metric: score / 2, "constant_predictor": constant}
    record = make_record(
        cfg,
        best=None if failed else best,
        history=[best, best | {"epoch": 2}],
        cost={"training_seconds": seconds},
        failure={"name": failed, "message": ""} if failed else None,
    )
    return Row(cfg, RunFolder("outputs", "0" * 64), record)


def runs(method, scores, *more, task="sst2", encoder="bert-base-cased", **kinds):
    common = (f"task={task}", f"encoder={encoder}", f"calibration={method}", *more)
    return [row(score, *common, f"seed={seed}", **kinds) for seed, score in enumerate(scores, 1)]


def table_of(rows, name="table1") -> PaperTable:
    content = published.load_tables("isotropy_calibration")[name]
    tasks = {row.cfg.task.name: row.cfg.task for row in rows}
    return PaperTable(content, list(build_paper_columns(content, tasks)), rows)


def test_a_cell_is_mean_and_deviation_with_the_papers_mark_and_its_own_below():
    plain, better, worse = [0.90, 0.91, 0.92], [0.94, 0.95, 0.96], [0.80, 0.81, 0.80]
    rows = [*runs("none", plain), *runs("cosine", better), *runs("flow", worse)]
    table = table_of(rows)
    (column,) = table.columns
    assert column.title == "SST-2"
    assert table.format_cell("bert-base-cased", "none", column) == "91.00 ± 1.00"
    assert table.format_cell("bert-base-cased", "cosine", column) == "95.00 ± 1.00 *"
    assert table.format_cell("bert-base-cased", "flow", column).endswith(" †")
    assert table.format_published_cell("bert-base-cased", "none", column) == "[91.44 ± 0.52]"
    assert table.p_values["bert-base-cased", "cosine", column] == pytest.approx(stats.ttest_ind(better, plain).pvalue)
    assert "Of 2 comparisons, 0.1 would have a mark by chance; 2 survive Holm" in table.list_notes(with_time=False)[0]


def test_a_constant_predictor_is_named_not_scored_like_any_other():
    rows = [
        *runs("none", [0.88, 0.89], "task.primary=f1", task="mrpc", metric="f1"),
        *runs("spectrum_polynomial", [0.8122, 0.8122], "task.primary=f1", task="mrpc", metric="f1", constant=True),
        *runs("spectrum_exponential", [0.8122], "task.primary=f1", task="mrpc", metric="f1", constant=True),
        *runs("spectrum_exponential", [0.85], "task.primary=f1", "seeds.init=9", task="mrpc", metric="f1"),
    ]
    table = table_of(rows)
    (column,) = table.columns
    assert table.format_cell("bert-base-cased", "spectrum_polynomial", column) == "constant (81.22 ± 0.00)"
    assert "1 constant" in table.format_cell("bert-base-cased", "spectrum_exponential", column)
    undefined = runs("none", [None], task="stsb", metric="pearson", constant=True)
    table = table_of(undefined)
    assert table.format_cell("bert-base-cased", "none", table.columns[0]) == "constant (NaN)"


def test_failed_and_missing_runs_are_counted():
    rows = [
        *runs("none", [0.9, 0.92]),
        *runs("none", [0.0], "seed=3", failed="crash"),
        *runs("flow", [0], failed="crash"),
    ]
    missing = runs("cosine", [0.9])
    missing[0].record = None
    table = table_of([*rows, *missing])
    (column,) = table.columns
    assert table.format_cell("bert-base-cased", "none", column) == "91.00 ± 1.41, 1 crash"
    assert table.format_cell("bert-base-cased", "flow", column) == "crash"
    assert table.format_cell("bert-base-cased", "cosine", column) == "missing"


def test_a_run_that_failed_after_a_good_epoch_has_no_score():
    rows = runs("none", [0.9, 0.92, 0.5])
    failure = Failure(name="non_finite_loss", message="")
    rows[2].record = rows[2].record.model_copy(update={"failure": failure})  # its best epoch is there
    table = table_of(rows)
    assert table.format_cell("bert-base-cased", "none", table.columns[0]) == "91.00 ± 1.41, 1 non_finite_loss"


def test_constant_models_are_compared_with_nothing():
    rows = [*runs("none", [0.90, 0.91, 0.92]), *runs("cosine", [0.5, 0.5, 0.5], constant=True)]
    table = table_of(rows)
    assert table.format_cell("bert-base-cased", "cosine", table.columns[0]) == "constant (50.00 ± 0.00)"
    assert table.list_notes(with_time=False) == []


def test_both_dev_splits_and_isotropy_have_their_columns():
    rows = runs("none", [0.8, 0.82], task="mnli")
    table = table_of(rows)
    assert [column.title for column in table.columns] == ["MNLI-m", "MNLI-mm"]
    assert table.format_cell("bert-base-cased", "none", table.columns[1]) == "40.50 ± 0.71"
    isotropy = table_of(rows, "table4")
    first = isotropy.columns[0]
    assert isotropy.format_cell("bert-base-cased", "none", first) == "0.900 ± 0.000"
    assert isotropy.format_published_cell("bert-base-cased", "none", first) == "[0.93 ± 0.01]"


def test_what_the_paper_lacks_says_so():
    other = table_of(runs("none", [0.9], encoder="minilm"))
    assert other.format_published_cell("minilm", "none", other.columns[0]) == "[91.44 ± 0.52 bert-base-cased]"
    rows = runs("batch_norm", [0.9], task="rotten_tomatoes")
    content = published.load_tables("isotropy_calibration")["table1"]
    assert not list(build_paper_columns(content, {"rotten_tomatoes": rows[0].cfg.task}))
    columns = list(build_foreign_columns([rows[0].cfg.task], [SCORE_KIND]))
    table = PaperTable(content, columns, rows)
    assert table.format_published_cell("bert-base-cased", "batch_norm", columns[0]) == "not in the paper"
    assert table.format_cell("bert-base-cased", "batch_norm", columns[0]) == "90.00"  # one seed has no deviation


def test_time_is_told_against_plain_fine_tuning():
    rows = [*runs("none", [0.9, 0.9], seconds=10.0), *runs("flow", [0.9, 0.9], seconds=42.0)]
    table = table_of(rows)
    assert table.format_time("bert-base-cased", "flow") == "21.0 s, 4.20x"
    more = [*runs("none", [0.9], task="rte", seconds=2.0), *runs("flow", [0.9], task="rte", seconds=3.0)]
    assert table_of([*rows, *more]).format_time("bert-base-cased", "flow") == "2.85x (1.50-4.20)"
    assert table_of(runs("flow", [0.9])).format_time("bert-base-cased", "flow") == "-"


ISOBN_TASKS = {"mnli": 0.84, "qnli": 0.91, "rte": 0.7, "sst2": 0.925, "mrpc": 0.86, "cola": 0.61, "stsb": 0.886}
ISOBN_METRICS = {"cola": "matthews", "stsb": "pearson"}


def isobn_runs(method="none", encoder="roberta-large", tasks=ISOBN_TASKS):
    """Five seeds of each task; the median is the number in ``ISOBN_TASKS``."""
    return [
        run
        for task in tasks
        for run in runs(
            method,
            [ISOBN_TASKS[task] + shift for shift in (-0.02, 0.0, 0.01, -0.01, 0.005)],
            f"task.primary={ISOBN_METRICS.get(task, 'accuracy')}",
            task=task,
            encoder=encoder,
            metric=ISOBN_METRICS.get(task, "accuracy"),
        )
    ]


def isobn_table(rows, paper="isobn") -> PaperTable:
    content = published.load_tables(paper)["table1"]
    return PaperTable(content, list(build_paper_columns(content, {r.cfg.task.name: r.cfg.task for r in rows})), rows)


def test_an_average_is_of_all_the_papers_columns_or_says_how_many_ran():
    table = isobn_table(isobn_runs())
    by_hand = 100 * sum(ISOBN_TASKS.values()) / 7  # of the medians
    assert table.format_average("roberta-large", "none") == f"{by_hand:.2f}" == "81.87"
    assert table.format_published_average("roberta-large", "none") == "[88.16]"
    assert table.format_published_average("roberta-large", "isobn_released") == "[88.98]"
    assert table.format_published_average("minilm", "none") == "[81.37 bert-base-cased]"
    assert table.format_published_average("roberta-large", "cosine") == "not in the paper"
    part = isobn_table(isobn_runs(tasks=["rte", "mrpc", "stsb"]))
    assert part.format_average("roberta-large", "none") == "3 of 7 columns"
    mixed = isobn_table([*isobn_runs(), *isobn_runs("isobn_paper", tasks=["rte"])])
    assert mixed.format_average("roberta-large", "isobn_paper") == "1 of 7 columns"
    undefined = isobn_runs(tasks=[task for task in ISOBN_TASKS if task != "stsb"])
    undefined += runs("none", [None], task="stsb", encoder="roberta-large", metric="pearson", constant=True)
    assert isobn_table(undefined).format_average("roberta-large", "none") == "NaN"


def test_a_table_without_averages_or_without_the_papers_columns_has_no_average():
    assert not table_of(runs("none", [0.9])).has_average
    foreign = runs("none", [0.9], task="rotten_tomatoes", encoder="roberta-large")
    content = published.load_tables("isobn")["table1"]
    table = PaperTable(content, list(build_foreign_columns([foreign[0].cfg.task], [SCORE_KIND])), foreign)
    assert not table.has_average
    assert table.list_reported_rows() == []


@pytest.mark.parametrize(("paper", "label"), [("isobn", "Reported (isobn_arxiv_v1)"), ("isobn_arxiv_v1", "Reported")])
def test_the_reported_row_stands_below_our_runs_of_its_encoder(paper, label):
    rows = [*isobn_runs(tasks=["rte"]), *isobn_runs(encoder="bert-base-cased", tasks=["rte"])]
    table = isobn_table(rows, paper)
    assert table.reported_label == label
    ((encoder, cells),) = table.list_reported_rows()
    assert (encoder, cells["Avg"], cells["RTE"], len(cells)) == ("roberta-large", "88.46", "86.6", 8)
    assert isobn_table(isobn_runs(encoder="bert-base-cased", tasks=["rte"]), paper).list_reported_rows() == []
    console = PlainConsole(width=140, record=True, file=io.StringIO())
    for part in build_terminal_tables(table, "title", 140, with_time=True):
        console.print(part)
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in console.export_text().splitlines()]
    assert [line for line in lines if line][-2:] == [
        [label, "[88.46]", "[86.6]", ""],
        ["roberta-large", "", "", ""],
    ]
    assert ["plain", "1 of 7 columns", "70.00 (1.20)", "5.0 s, 1.00x"] in lines
    assert ["roberta-large", "[88.16]", "[84.47 (1.0)]", ""] in lines
    assert any(note.startswith(f"{label}: numbers of others") for note in table.list_notes(with_time=False))


@pytest.mark.parametrize("evaluated", [[1, 2], [2]])
def test_the_time_of_an_epoch_is_the_same_however_often_the_run_was_evaluated(evaluated):
    (run,) = runs("none", [0.9], seconds=42.0)
    epochs = [run.record.best.model_copy(update={"epoch": epoch}) for epoch in evaluated]
    run.record = run.record.model_copy(update={"history": epochs, "best": epochs[-1]})
    assert compute_epoch_seconds([run]) == 21.0
    (tidy,) = build_run_rows([run])
    assert (tidy["epoch"], tidy["epochs"]) == (2, 2)
    assert build_epoch_columns([run])["epoch"] == evaluated


def test_epochs_that_lack_a_measure_have_nan_there():
    rows = runs("none", [0.9, 0.8, 0.7])
    for row, isotropy in zip(rows, ({"a": 1.0}, {"b": 2.0}, {}), strict=True):
        epochs = [row.record.best.model_copy(update={"isotropy": isotropy})] * 2
        row.record = row.record.model_copy(update={"history": epochs})
    columns = build_epoch_columns(rows)
    assert columns["a"] == pytest.approx([1.0, 1.0, math.nan, math.nan, math.nan, math.nan], nan_ok=True)
    assert columns["b"] == pytest.approx([math.nan, math.nan, 2.0, 2.0, math.nan, math.nan], nan_ok=True)
    assert {len(values) for values in columns.values()} == {6}


def test_the_rule_for_the_reported_epoch_says_which_epochs_were_compared():
    rows = runs("none", [0.9, 0.9], "evaluation.every=2")
    assert describe_epoch_rule(rows) == (
        "best of the evaluated epochs (evaluation.every=2) on the dev set, the set it is reported on"
    )
    last = runs("none", [0.9], "evaluation.every=last", "optimization.report=last")
    assert describe_epoch_rule(last) == "last epoch, on the dev set"
    every = runs("none", [0.9])
    assert describe_epoch_rule(every) == "best epoch on the dev set, the set it is reported on"


@pytest.mark.parametrize("width", [60, 100, 300])
def test_wide_tables_are_broken_and_lose_nothing(width):
    rows = [run for task in ("sst2", "rte", "wnli", "qnli", "mnli") for run in runs("none", [0.9, 0.95], task=task)]
    console = PlainConsole(width=width, record=True, file=io.StringIO())
    for part in build_terminal_tables(table_of(rows), "title", width, with_time=True):
        console.print(part)
    text = console.export_text()
    assert all(len(line) <= width for line in text.splitlines())
    assert text.count("[91.44 ± 0.52]") == 1
    for title in ("SST-2", "RTE", "WNLI", "QNLI", "MNLI-m ", "MNLI-mm", "training time"):
        assert title in text
    assert text.count("plain") == {60: 4, 100: 2, 300: 1}[width]


def test_the_papers_tables_have_no_score_of_a_task_that_the_paper_lacks():
    cfg = make_config("+experiment=glue_adaptation")
    rows = [run for method in ("none", "fixed_norm_l2") for run in runs(method, [0.7, 0.8], task="rotten_tomatoes")]
    console = PlainConsole(width=140, record=True, file=io.StringIO())
    print_paper_tables(console, cfg.experiment, rows)
    text = console.export_text()
    assert text == ""
    console = PlainConsole(width=140, record=True, file=io.StringIO())
    print_paper_tables(console, make_config("+experiment=glue_calibration").experiment, rows)
    text = console.export_text()
    assert "table1" not in text
    assert "table4" in text  # isotropies, which the sweep's own table lacks
    assert text.count("rotten_tomatoes head/i1_printed") == 1
    assert "not in the paper" not in text


def test_the_sweeps_table_shows_a_head_that_differs_between_methods():
    rows = [*runs("none", [0.90, 0.91, 0.92], "head=isobn"), *runs("cosine", [0.85, 0.86, 0.87], "head=huggingface")]
    assert find_varying_settings(rows) == ["head.name"]
    assert find_varying_settings(rows[:3]) == []


def test_summaries():
    values = [1.0, 2.0, 6.0]
    assert compute_cell_statistics(values, ["mean", "sd", "median", "max"]) == pytest.approx(
        [3.0, math.sqrt(7), 2.0, 6.0]
    )
    assert all(math.isnan(x) for x in compute_cell_statistics([1.0, math.nan], ["mean", "sd"]))


def test_welch_tests_that_say_nothing_are_nan():
    assert welch([1, 2, 3], [2, 3, 5]) == pytest.approx(stats.ttest_ind([1, 2, 3], [2, 3, 5], equal_var=False).pvalue)
    for ours, theirs in (([1], [1, 2]), ([1, 1], [2, 2]), ([1, math.nan], [1, 2])):
        assert math.isnan(welch(ours, theirs))
    assert welch([1, 1, 1], [2, 2.5, 2.2]) < 0.05


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.6]) == [1.0, 1.0]
    assert holm([]) == []


def test_a_task_on_which_a_run_predicts_one_class_is_in_no_comparison():
    """Check that a collapsed run of plain fine-tuning does not make every method look better."""
    rows = [
        *runs("none", [0.6, 0.85]),
        *runs("none", [0.5], "seed=3", constant=True),
        *runs("cosine", [0.9, 0.91, 0.92]),
    ]
    (column,) = (table := table_of(rows)).columns
    assert ("bert-base-cased", "cosine", column) not in table.p_values
    assert table.format_cell("bert-base-cased", "cosine", column) == "91.00 ± 1.00"
    assert build_cell(table, "bert-base-cased", "cosine", column, None).comparison is None
    others = table_of([*runs("none", [0.6, 0.85, 0.5]), *runs("cosine", [0.9, 0.91, 0.92])])
    (column,) = others.columns
    assert build_cell(others, "bert-base-cased", "cosine", column, None).comparison is not None
