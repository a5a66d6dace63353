"""Reports of translation and summarisation, from made-up records: columns, times, notes, every view of them."""

import io
import math

import pytest
from helpers import make_config, make_record

from isobench.common.terminal import PlainConsole
from isobench.config.schema import Experiment
from isobench.data.scale import find_scale_differences
from isobench.papers import published
from isobench.report.claims import FAILS, HOLDS, NOT_RUN, load_claims, nothing_improves
from isobench.report.generation_notes import describe_generation
from isobench.report.html import render_report
from isobench.report.markdown_latex import format_latex, format_markdown
from isobench.report.old_build import build_report
from isobench.report.paper_columns import build_paper_columns
from isobench.report.paper_table import PaperTable
from isobench.report.paper_terminal import print_paper_tables
from isobench.report.sweep_table import list_footnotes
from isobench.report.tidy_rows import build_run_rows
from isobench.runs.folder import RunFolder
from isobench.runs.grouping import find_varying_settings
from isobench.runs.record import RecordedData
from isobench.runs.row import Row

MT = Experiment("mt_calibration", "isotropy_calibration", ["table2"])
SUMMARIES = Experiment("summarization_calibration", "isotropy_calibration", ["table3", "table5"])
SEARCH = {"num_beams": 5, "length_penalty": 1.0, "max_new_tokens": 128, "precision": "32"}
SIGNATURES = {"bleu": "nrefs:1|case:mixed|tok:13a", "chrf": "nrefs:1|nc:6"}


LIMITS = {"sources": 256, "targets": 64}  # the model may take less than the task allows


def row(score, *overrides, minutes=108.0, epochs=5, failed=None, constant=False, truncated=None) -> Row:
    """A run whose metrics are ``score`` and fractions of it, with the time of an epoch in minutes."""
    cfg = make_config("output_dir=/nowhere", "data.root=null", *overrides)
    metrics = {name: score / place for place, name in enumerate(cfg.task.metrics, 1)}
    split = cfg.task.dev_splits[0]
    best = {
        "epoch": epochs, "step": 50, "score": score, "selection": score,
        split: {**metrics, "loss": 1.75, "constant_predictor": constant},
        "isotropy": {"head/i1": 0.2, "head/i1_printed": 0.88, "head/i2_printed": 0.6, "head/i1_symmetric": 0.1},
    }  # fmt: skip
    data = {
        "fingerprint": {},
        "examples": {"train": 2000, split: 500},
        "truncated": truncated or {},
        "limits": LIMITS,
    }
    record = make_record(
        cfg,
        best=None if failed else best,
        history=[best] * epochs,
        failure={"name": failed, "message": "it fell over"} if failed else None,
        cost={"seconds": 60 * minutes * epochs + 900, "training_seconds": 60 * minutes * epochs},
        scale={"name": cfg.scale, "differs": find_scale_differences(cfg)},
        data=data,
        generation={"search": SEARCH, "signatures": SIGNATURES},
    )
    key = "-".join((*overrides, str(score))).encode().hex().ljust(64, "0")
    return Row(cfg, RunFolder("/nowhere", key), record)


def runs(method, scores, task="wmt16_en_ro", encoder="mbart-large-cc25", minutes=(108.0, 108.0, 108.0), **kinds):
    common = (f"task={task}", f"encoder={encoder}", f"calibration={method}")
    pairs = zip(scores, minutes, strict=False)
    return [row(score, *common, f"seed={n}", minutes=m, **kinds) for n, (score, m) in enumerate(pairs, 1)]


def table_of(rows, name="table2") -> PaperTable:
    content = published.load_tables("isotropy_calibration")[name]
    return PaperTable(
        content, list(build_paper_columns(content, {row.cfg.task.name: row.cfg.task for row in rows})), rows
    )


PLAIN, BETTER = [0.26, 0.261, 0.262], [0.28, 0.281, 0.282]


def test_the_columns_of_a_task_are_its_score_isotropies_and_time():
    table = table_of(runs("none", PLAIN))
    assert [column.title for column in table.columns] == ["EN-RO BLEU", "EN-RO I1", "EN-RO I2", "EN-RO Time"]
    assert [column.is_score for column in table.columns] == [True, False, False, False]
    line = ("mbart-large-cc25", "none")
    assert [table.format_cell(*line, column) for column in table.columns] == [
        "26.10 ± 0.10",
        "0.880 ± 0.000",
        "0.600 ± 0.000",
        "108 ± 0.00",
    ]
    assert [table.format_published_cell(*line, column) for column in table.columns] == [
        "[26.15 ± 0.08]",
        "[0.88 ± 0.01]",
        "[0.60 ± 0]",
        "[108 ± 0]",
    ]


def test_the_small_data_sets_have_columns_of_their_own():
    rows = [*runs("flow", [0.09], "wmt16_de_en_50k"), *runs("none", [0.11], "wmt16_de_en_50k"), *runs("none", PLAIN)]
    table = table_of(rows)
    (score,) = (column for column in table.columns if column.title == "DE-EN 50k BLEU")
    (large,) = (column for column in table.columns if column.title == "EN-RO BLEU")
    assert table.format_published_cell("mbart-large-cc25", "flow", score) == "[10.93 ± 0.70]"
    assert table.format_cell("mbart-large-cc25", "flow", large) == ""
    assert table.format_published_cell("mbart-large-cc25", "flow", large) == "not in the paper"
    summaries = table_of(runs("flow", [0.36], "cnn_dailymail_20k", "bart-base"), "table5")
    assert [summaries.format_published_cell("bart-base", "flow", column) for column in summaries.columns] == [
        "[36.15 ± 0.30]", "[15.40 ± 0.23]", "[24.79 ± 0.19]", "[0.94 ± 0]", "[0.25 ± 0]", "[95 ± 2]",
    ]  # fmt: skip
    foreign = table_of(runs("none", [0.3], encoder="bart-scratch"))
    assert foreign.format_published_cell("bart-scratch", "none", foreign.columns[3]) == "[108 ± 0 mbart-large-cc25]"


def test_a_million_pairs_and_all_pairs_are_both_compared_with_the_papers_de_en():
    rows = [*runs("none", PLAIN, "wmt16_de_en_1m"), *runs("none", [0.2251, 0.2251, 0.2251], "wmt16_de_en")]
    table = table_of(rows)
    kinds = ("BLEU", "I1", "I2", "Time")
    assert [column.title for column in table.columns] == [
        f"DE-EN {kind}{suffix}" for kind in kinds for suffix in ("", " (wmt16_de_en)")
    ]
    shown = {
        column.title: table.format_published_cell("mbart-large-cc25", "none", column) for column in table.columns
    }
    assert shown["DE-EN BLEU"] == shown["DE-EN BLEU (wmt16_de_en)"] == "[22.81 ± 0.35]"
    difference = "trained on all 4,548,885 pairs; by its times, the paper trained on about a million (errata.md, 15)"
    assert table.list_notes(with_time=False)[0] == f"wmt16_de_en: {difference}."
    report = build_report(MT, rows)
    (line,) = report.tables[0].lines
    assert (line.cells["DE-EN BLEU"].verdict, line.cells["DE-EN BLEU"].why) == ("above", "+3.29, spread 0.35")
    whole = line.cells["DE-EN BLEU (wmt16_de_en)"]
    assert (whole.verdict, whole.why) == ("within", f"-0.30, spread 0.35; {difference}")
    assert not any(difference in note for note in table_of(rows[:3]).list_notes(with_time=False))
    for task in ("wmt16_de_en_1m", "wmt16_de_en"):
        cell = published.find_published_cell(
            "isotropy_calibration", "table2", "mbart-large-cc25", "none", task, "bleu"
        )
        assert cell == ("22.81 ± 0.35", "mbart-large-cc25")


def test_rouge_l_is_of_the_metric_of_that_name():
    table = table_of(runs("none", [0.6], "cnn_dailymail", "bart-base"), "table5")
    shown = {c.title: table.format_cell("bart-base", "none", c) for c in table.columns}
    assert (shown["R-1"], shown["R-2"], shown["R-L"]) == ("60.00", "30.00", "20.00")  # x 1, / 2, / 3


def test_a_time_is_in_minutes_of_training_an_epoch_and_has_no_mark():
    rows = [*runs("none", PLAIN, minutes=[0.31, 0.32, 0.33]), *runs("cosine", BETTER, minutes=[17.1, 17.2, 17.3])]
    table = table_of(rows)
    (time,) = (column for column in table.columns if column.time)
    (score,) = (column for column in table.columns if column.is_score)
    assert time.read_value(rows[0]) == pytest.approx(0.31)
    assert table.format_cell("mbart-large-cc25", "none", time) == "0.32 ± 0.01"
    assert table.format_cell("mbart-large-cc25", "cosine", time) == "17.2 ± 0.10"
    assert table.format_cell("mbart-large-cc25", "cosine", score).endswith(" *")
    assert list(table.p_values) == [("mbart-large-cc25", "cosine", score)]
    assert table.format_time("mbart-large-cc25", "cosine") == f"{60 * 17.1:.1f} s, {17.1 / 0.31:.2f}x"
    assert any(note.startswith("Minutes: of training per epoch") for note in table.list_notes(with_time=False))
    assert [time.format_value(x) for x in (246.4, 1234.0, 9.04, None, math.nan)] == [
        "246",
        "1234",
        "9.04",
        None,
        "NaN",
    ]


def test_a_failed_run_has_no_time_and_a_constant_one_has_one():
    rows = [*runs("none", [0.26], failed="crash"), *runs("flow", [0.0, 0.0], minutes=[9.0, 9.0], constant=True)]
    table = table_of(rows)
    *_, time = table.columns
    assert table.format_cell("mbart-large-cc25", "none", time) == "crash"
    assert table.format_cell("mbart-large-cc25", "flow", time) == "9.00 ± 0.00"
    assert table.format_cell("mbart-large-cc25", "flow", table.columns[0]) == "constant (0.00 ± 0.00)"


def test_only_scores_are_compared_and_times_are_held_against_no_other_machine():
    report = build_report(MT, [*runs("none", PLAIN), *runs("cosine", BETTER, minutes=[500.0, 501.0, 502.0])])
    (table,) = report.tables
    cells = {line.method: line.cells for line in table.lines}
    assert [name for name, cell in cells["cosine"].items() if cell.comparison] == ["EN-RO BLEU"]
    assert cells["cosine"]["EN-RO BLEU"].comparison.difference == pytest.approx(2.0)
    assert cells["cosine"]["EN-RO BLEU"].verdict == "above"  # 28.10 against 26.07 ± 0.10
    assert cells["none"]["EN-RO I1"].verdict == "within"
    for method in ("none", "cosine"):
        time = cells[method]["EN-RO Time"]
        assert (time.verdict, time.why) == ("not comparable", "times of different machines")
    assert {line.method: line.time for line in table.lines}["cosine"].endswith(f"{500 / 108:.2f}x")
    assert not any("Time" in sentence for sentence in report.evidence)
    page, text, tex = render_report(report), format_markdown(report), format_latex(report)
    for view in (page, text, tex):
        assert "EN-RO Time" in view
        assert "[108 ± 0]".strip("[]").split()[0] in view


def test_the_time_over_plain_of_several_tasks_is_the_median_and_the_range():
    rows = [
        run
        for task, factor in (("wmt16_en_ro", 1.5), ("wmt16_de_en", 2.0), ("wmt16_de_en_50k", 4.0))
        for method, times in (("none", 10.0), ("cosine", 10.0 * factor))
        for run in runs(method, PLAIN, task, minutes=[times] * 3)
    ]
    (table,) = build_report(MT, rows).tables
    assert {line.method: line.time for line in table.lines}["cosine"] == "2.00x (1.50-4.00)"


@pytest.mark.parametrize(
    ("experiment", "task", "primary"),
    [(MT, "captions", "bleu"), (MT, "multi30k", "bleu"), (SUMMARIES, "bulletins", "rouge1")],
)
def test_tasks_that_are_not_the_papers_have_a_column_of_a_kind_once(experiment, task, primary):
    rows = [run for method in ("none", "flow") for run in runs(method, [0.5, 0.6], task, "bart-scratch")]
    (table,) = build_report(experiment, rows).tables
    kinds = (primary, "head/i1_printed", "head/i2_printed", "minutes")
    assert table.columns == [f"{task} {kind}" for kind in kinds]
    assert [table.lines[0].cells[column].ours for column in table.columns] == [
        "55.00 ± 7.07", "0.880 ± 0.000", "0.600 ± 0.000", "108 ± 0.00",
    ]  # fmt: skip
    console = PlainConsole(width=160, record=True, file=io.StringIO())
    print_paper_tables(console, experiment, rows)
    text = console.export_text()
    assert text.count(f"{task} minutes") == 1
    assert text.count("training time per epoch") == 1


def test_a_loss_is_no_percentage():
    (run,) = build_run_rows(runs("none", [0.26]))
    assert run["validation/bleu"] == pytest.approx(26.0)
    assert run["validation/chrf"] == pytest.approx(13.0)
    assert run["validation/loss"] == 1.75
    assert "validation/constant_predictor" not in run
    (undefined,) = [row(0.26, "task=captions")]
    undefined.record.best.metrics("validation")["loss"] = None
    assert build_run_rows([undefined])[0]["validation/loss"] is None


CUT = {"validation": {"sources": 12, "targets": 0}, "train": {"sources": 1500, "targets": 3}}


def test_search_metrics_and_truncation_are_said_once_in_every_view():
    rows = runs("none", PLAIN, "cnn_dailymail", "bart-base", truncated=CUT)
    search = (
        "Search: num_beams 5, length_penalty 1.0, max_new_tokens 128, precision 32. "
        "Metrics: bleu nrefs:1|case:mixed|tok:13a, chrf nrefs:1|nc:6."
    )
    cut = (
        "Truncated: 12 of 500 sources of validation are longer than 256 tokens; "
        "1,500 of 2,000 sources of train are longer than 256 tokens; "
        "3 of 2,000 targets of train are longer than 64 tokens."
    )
    assert describe_generation(rows) == [search, cut]
    assert [note for note in list_footnotes(rows) if note in (search, cut)] == [search, cut]
    report = build_report(SUMMARIES, rows)
    assert report.notes == [search, cut]
    assert cut in render_report(report)
    assert "12 of 500 sources of validation" in format_markdown(report)


def test_notes_that_differ_between_tasks_say_whose_they_are():
    rows = [*runs("none", PLAIN, truncated={"validation": {"sources": 1, "targets": 0}}),
            *runs("none", PLAIN, "wmt16_de_en"), *runs("flow", PLAIN, "wmt16_de_en")]  # fmt: skip
    first, second = describe_generation(rows)
    assert first.startswith("Search: ")  # the same for all
    assert second == (
        "wmt16_en_ro, mbart-large-cc25: Truncated: 1 of 500 sources of validation are longer than 256 tokens."
    )


@pytest.mark.parametrize("damaged", [{}, [], "text", 7, {"search": 3, "signatures": []}, {"search": {}}])
def test_damaged_parts_of_a_record_are_refused(damaged):
    cfg = make_config()
    for parts in (
        {"generation": damaged},
        {"data": {"fingerprint": {}, "truncated": damaged or None}},
        {"data": {"fingerprint": {}, "examples": damaged or None}},
    ):
        with pytest.raises(ValueError, match="validation error"):
            make_record(cfg, **parts)


def test_records_without_these_parts_say_nothing():
    rows = runs("none", PLAIN)
    for run in rows:
        run.record = run.record.model_copy(update={"generation": None, "data": RecordedData(fingerprint={})})
    assert describe_generation(rows) == []
    data = {"fingerprint": {}, "truncated": {"validation": {"sources": 3, "targets": 0}}}
    for run in rows:
        run.record = run.record.model_copy(update={"data": RecordedData.model_validate(data)})
    assert describe_generation(rows) == ["Truncated: 3 sources of validation are longer than the model allows."]
    rows[0].record = rows[0].record.model_copy(update={"data": RecordedData(fingerprint={})})
    rows[1].record = rows[2].record = None
    assert describe_generation(rows) == []
    assert describe_generation([row(0.9, "task=rte")]) == []  # no generation: nothing to say


def test_a_search_setting_that_varies_has_a_column_of_its_own():
    rows = [row(0.3, "task=captions", "encoder=bart-scratch", f"task.generation.beams={beams}") for beams in (1, 4)]
    assert find_varying_settings(rows) == ["task.generation.beams"]
    assert [run["task.generation.beams"] for run in build_run_rows(rows)] == ["1", "4"]
    sizes = [row(0.3, "encoder=bart-scratch", f"encoder.scratch.d_model={size}") for size in (64, 128)]
    assert find_varying_settings(sizes) == ["encoder.scratch.d_model"]


def test_the_claims_on_translation_and_summarisation():
    found = {claim.experiment: claim for claim in load_claims() if "calibration improves" in claim.text}
    assert set(found) == {"glue_calibration", "mt_calibration", "summarization_calibration"}
    assert all(claim.check is nothing_improves and not claim.rows_file for claim in found.values())
    same = [*runs("none", PLAIN), *runs("cosine", [0.2605, 0.2615, 0.261])]
    assert nothing_improves(build_report(MT, same)).word == HOLDS
    outcome = nothing_improves(build_report(MT, [*runs("none", PLAIN), *runs("cosine", BETTER)]))
    assert outcome.word == FAILS
    assert "cosine on EN-RO BLEU" in outcome.numbers
    assert nothing_improves(build_report(MT, runs("none", PLAIN))).word == NOT_RUN


@pytest.mark.slow
@pytest.mark.parametrize(
    ("experiment", "scale", "number"),
    [("mt", "paper", 36), ("mt", "embedded", 15), ("summarization", "paper", 18), ("summarization", "embedded", 15)],
)
def test_the_experiments_grids_compose_and_have_the_papers_rows(experiment, scale, number):
    from isobench.sweep.grid import expand_grid

    cfg = make_config(f"+experiment={experiment}_calibration")
    grid = expand_grid(cfg.experiment.grid[scale], {})
    assert len(grid) == len(set(map(tuple, grid))) == number
    content = published.load_tables("isotropy_calibration")[cfg.experiment.tables[0]]
    found = set()
    for overrides in (run for run in grid if "seed=1" in run):
        one = make_config(f"+experiment={experiment}_calibration", f"scale={scale}", *overrides)
        assert one.optimization.report == "last"
        assert one.task.generation is not None
        found.add((one.encoder.name, content.methods[one.calibration["name"]], one.task.name))
        if scale == "paper":
            o = one.optimization
            assert (o.lr, o.schedule, o.batch_size, o.epochs) == (3e-5, "polynomial", 48, 5)  # Appendix B
    printed = {
        (encoder, line, content.columns[title].task)
        for encoder, rows in content.cells.items()
        for line in rows
        for title in rows[line]
    }
    assert (found == printed) == (scale == "paper")
