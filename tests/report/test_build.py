"""Reports from made-up records: tidy rows, selection, verdicts, Markdown and LaTeX, as a reader would check them."""

import statistics

import pandas as pd
import pytest
from helpers import fails, make_ended_run
from scipy import stats

from isobench.config.schema import Experiment, Selection
from isobench.papers.published import PrintedNumber
from isobench.report.build import build_report
from isobench.report.cells import matches_printed
from isobench.report.output.terminal import print_table
from isobench.report.output.text import format_latex, format_markdown
from isobench.report.selection import find_varying
from isobench.report.tables import describe_choice
from isobench.runs.run import Run
from isobench.runs.state import add_states

IN_PAPER = ("task=rte", "encoder=bert-base-cased")


def row(outputs, score, *overrides, ended=True, **kinds) -> Run:
    isotropy = {"embedding/ev1": 0.5, "embedding/i1": 0.2, "head/i1": 0.9}
    run = make_ended_run(score, *overrides, output_dir=outputs, isotropy=isotropy, **kinds)
    return run if ended else Run(run.cfg, run.folder, None)


def runs(outputs, method, scores, *more, **kinds):
    common = (*IN_PAPER, f"calibration={method}", *more)
    return [row(outputs, score, *common, f"seed={seed}", **kinds) for seed, score in enumerate(scores, 1)]


def experiment(*selection, **more) -> Experiment:
    return Experiment("glue_isobn", "isobn", ["table1"], selection=Selection(*selection, **more))


def cells(report, column="RTE"):
    return {cell.method: cell for cell in report.cells[report.cells["column"] == column].itertuples()}


def select(rows, *selection, **more):
    """The runs that the tables show, and the rule in words."""
    report = build_report(experiment(*selection, **more), rows)
    return [row for row, chosen in zip(rows, report.runs["selected"], strict=True) if chosen], report.selection


PLAIN, BETTER = [0.67, 0.68, 0.685, 0.69, 0.70], [0.76, 0.75, 0.765, 0.78, 0.77]


def test_verdicts_hold_ours_against_the_papers_spread(tmp_path):
    rows = [*runs(tmp_path, "none", PLAIN), *runs(tmp_path, "isobn_paper", BETTER)]
    found = cells(build_report(experiment(), rows))
    plain, ours = found["none"], found["isobn_paper"]
    assert (plain.published, plain.verdict, ours.verdict) == ("67.87 (1.1)", "within", "above")
    assert ours.why == "+5.75, spread 1.6"  # 76.5 against 70.75 (1.6)
    assert (ours.seeds, ours.values) == ([1, 2, 3, 4, 5], pytest.approx([100 * score for score in BETTER]))
    low = cells(build_report(experiment(), runs(tmp_path, "none", [0.5, 0.5, 0.5])))["none"]
    assert low.verdict == "below"


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (["task.train_samples=100"], "scale: at most 100 training examples"),
        (["encoder=bert-base-uncased"], "the paper's cell is bert-base-cased's"),
        (["calibration=whitening_zca"], "not in the paper"),
    ],
)
def test_what_is_not_comparable_says_why(tmp_path, more, why):
    (cell,) = cells(build_report(experiment(), runs(tmp_path, "none", PLAIN, *more))).values()
    assert (cell.verdict, cell.why) == ("not comparable", why)


def test_a_method_is_compared_with_plain_fine_tuning_once(tmp_path):
    rows = [*runs(tmp_path, "none", PLAIN), *runs(tmp_path, "isobn_paper", BETTER)]
    found = cells(build_report(experiment(), rows))
    assert not found["none"].compared
    cell = found["isobn_paper"]
    assert cell.p == pytest.approx(stats.ttest_rel(BETTER, PLAIN).pvalue)  # they share their seeds
    assert (cell.p_holm, cell.test_seeds) == (pytest.approx(cell.p), 5)  # a family of one
    assert (cell.difference, cell.mark) == (pytest.approx(8.0), "*")
    others = [row(tmp_path, score, *IN_PAPER, f"seed={seed}") for seed, score in enumerate(PLAIN, 6)]
    unpaired = cells(build_report(experiment(), [*others, *rows[5:]]))["isobn_paper"]
    assert unpaired.p == pytest.approx(stats.ttest_ind(BETTER, PLAIN, equal_var=False).pvalue)
    assert unpaired.test_seeds == 0


def test_partial_failed_and_constant_runs_are_said(tmp_path, capsys):
    rows = [
        *runs(tmp_path, "none", [0.7, 0.71]), *runs(tmp_path, "isobn_paper", [0.0], failed="crash"),
        row(tmp_path, 0.0, *IN_PAPER, "calibration=isobn_paper", "seed=2", ended=False),
        *runs(tmp_path, "isobn_released", [0.527, 0.527], constant=True),
    ]  # fmt: skip
    report = build_report(experiment(), add_states(rows))
    assert report.states == {"done": 4, "failed": 1, "missing": 1}
    found = cells(report)
    assert (found["isobn_paper"].troubles, found["isobn_paper"].verdict) == (["crash", "missing"], "")
    assert found["isobn_released"].ours.startswith("constant (52.70")
    assert not found["isobn_released"].compared
    assert len(report.failures) == 3  # one crash, two constant predictors
    print_table(report, rows)
    assert "2 runs predict" in capsys.readouterr().out


def test_a_configuration_with_a_run_of_one_class_is_compared_nowhere(tmp_path):
    rows = [*runs(tmp_path, "none", [0.7, 0.71]), *runs(tmp_path, "isobn_paper", [0.8])]
    rows.append(row(tmp_path, 0.5, *IN_PAPER, "calibration=isobn_paper", "seed=2", constant=True))
    rows[-1].record.best.isotropy["embedding/ev1"] = 1.0
    report = build_report(experiment(), rows)
    line = report.configurations.set_index("method").loc["isobn_paper"]
    assert (line["values"], line["base"], line["ev1"]) == ([80.0, 50.0], [], 0.5)
    assert list(report.methods["compared"]) == [[], []]


def test_tidy_rows_have_every_run_and_every_epoch(tmp_path):
    missing = row(tmp_path, 0.0, *IN_PAPER, "calibration=isobn_paper", ended=False)
    report = build_report(experiment(), [*runs(tmp_path, "none", [0.7, 0.8]), missing])
    assert list(report.runs["status"]) == ["finished", "finished", "missing"]
    assert list(report.runs["score"]) == [70.0, 80.0, None]
    first = report.runs.iloc[0]
    assert (first["epoch"], first["epochs"], first["seconds"], first["embedding/ev1"]) == (2, 2, 9.0, 0.5)
    assert (first["validation/accuracy"], first["commit"], first["machine"]) == (70.0, "abc", "X")
    epochs = report.epochs[["seed", "epoch", "score"]].to_numpy().tolist()
    assert epochs == [[1, 1, 35], [1, 2, 70], [2, 1, 40], [2, 2, 80]]


def configurations(tmp_path):
    """lr 1e-5 is best on seeds 1 and 2, lr 2e-5 on all; IsoBN has one configuration."""
    low, high = "optimization.lr=1e-5", "optimization.lr=2e-5"
    return [
        *runs(tmp_path, "none", [0.74, 0.74, 0.50, 0.50], low),
        *runs(tmp_path, "none", [0.70, 0.70, 0.70, 0.70], high),
        *runs(tmp_path, "isobn_paper", [0.71, 0.72, 0.73, 0.74], low),
    ]  # fmt: skip


def test_selection_on_the_reported_set_and_on_seeds_of_its_own(tmp_path):
    rows = configurations(tmp_path)
    kept, words = select(rows, "dev")
    assert [r.cfg.optimization.lr for r in kept if r.cfg.calibration["name"] == "none"] == [2e-5] * 4
    assert "about 0.56 standard deviations by chance alone" in words  # the best of 2 instead of 1
    kept, _ = select(rows, "seeds", [1, 2])
    mine = [(r.cfg.optimization.lr, r.cfg.seed) for r in kept if r.cfg.calibration["name"] == "none"]
    assert mine == [(1e-5, 3), (1e-5, 4)]  # chosen by 1 and 2, reported by the others
    mean = statistics.fmean(cells(build_report(experiment(rule="seeds", seeds=[1, 2]), rows))["none"].values)
    assert mean == pytest.approx(50)


@pytest.mark.parametrize(
    ("selection", "counts"),
    [
        ({"rule": "dev"}, {"none": 2, "isobn_paper": 1}),
        ({"rule": "dev", "equal_budget": True}, {"none": 1, "isobn_paper": 1}),
        ({"rule": "seeds", "seeds": [1, 2]}, {"none": 1, "isobn_paper": 1}),  # other scores are reported
    ],
)
def test_tidy_rows_say_from_how_many_configurations_the_reported_scores_selected(tmp_path, selection, counts):
    report = build_report(experiment(**selection), configurations(tmp_path))
    assert dict(zip(report.runs["method"], report.runs["candidates"], strict=True)) == counts


def test_equal_budgets_leave_every_method_as_many_configurations(tmp_path):
    kept, _ = select(configurations(tmp_path), "dev", equal_budget=True)
    assert len({r.cfg.optimization.lr for r in kept}) == 1  # that which both methods have
    lrs = ("optimization.lr=1e-5", "optimization.lr=2e-5")
    rows = [run for lr in lrs for run in runs(tmp_path, "none", [0.7, 0.71], lr)]
    for beta, score in (("0.25", 0.9), ("0.5", 0.8), ("1.0", 0.95)):  # the default, 0.5, is the worst
        for lr in lrs:
            rows += runs(tmp_path, "isobn_paper", [score, score + 0.01], f"calibration.beta={beta}", lr)
    kept, words = select(rows, "dev", equal_budget=True)
    assert "plain 2, isobn_paper 2" in words
    assert {r.cfg.calibration["beta"] for r in kept if r.cfg.calibration["name"] == "isobn_paper"} == {0.5}


def test_a_configuration_with_fewer_scores_can_not_win(tmp_path):
    rows = runs(tmp_path, "none", [0.7, 0.7], "optimization.lr=1e-5")
    rows += runs(tmp_path, "none", [0.99], "optimization.lr=2e-5")
    assert {r.cfg.optimization.lr for r in select(rows, "dev")[0]} == {1e-5}


@pytest.mark.parametrize("selection", [("none",), ("seeds", [1, 2, 3, 4]), ("seeds", [])])
def test_selections_that_cant_be_made(tmp_path, selection):
    with fails():
        select(configurations(tmp_path), *selection)


@pytest.mark.parametrize(
    ("ours", "others"),
    [
        ("task.train_samples=400", "task.train_samples=512"), ("head=isobn", "head=huggingface"),
        ("task.primary=accuracy", "task.primary=f1"),
        ("evaluation.every=1", "evaluation.every=last"), ("optimization.report=best", "optimization.report=last"),
    ],
)  # fmt: skip
def test_nothing_is_compared_or_selected_across_scales_heads_and_reported_epochs(tmp_path, ours, others):
    plain, calibrated = runs(tmp_path, "none", PLAIN, ours), runs(tmp_path, "isobn_paper", BETTER, others)
    report = build_report(experiment(), [*plain, *calibrated])
    assert not report.cells["compared"].any()
    assert all(any(name.split("=")[1] in view.title for name in (ours, others)) for view in report.views)
    assert report.comparisons.empty
    worse = runs(tmp_path, "none", [score - 0.1 for score in PLAIN], others)
    report = build_report(experiment(), [*plain, *calibrated, *worse])
    assert report.runs["selected"].all()  # no scale or head wins over the other
    (difference,) = report.cells[report.cells["compared"]]["difference"]
    assert difference == pytest.approx(100 * (statistics.fmean(BETTER) - statistics.fmean(PLAIN)) + 10)
    (line,) = report.comparisons.itertuples()
    assert line.difference.startswith("+18.00 ")  # plain fine-tuning of the same scale and head, too


def over_tasks(outputs, method, scores, **more):
    return [
        row(outputs, score, "encoder=bert-base-cased", f"task={task}", f"calibration={method}", f"seed={seed}", *one)
        for task, own in more.items() for one in own for seed, score in enumerate(scores(*one))
    ]  # fmt: skip


def test_p_pays_for_the_choices_of_each_task(tmp_path):
    plain = over_tasks(tmp_path, "none", lambda: PLAIN, rte=[()], mrpc=[()])
    strengths = [("calibration.strength=0.5",), ("calibration.strength=2.0",)]
    ours = over_tasks(tmp_path, "cosine", lambda *_: BETTER, rte=strengths, mrpc=[()])
    assert build_report(experiment(), [*plain, *ours]).methods["trials"].tolist() == [1, 2]


def test_scales_are_compared_each_with_its_own_in_whatever_order_they_ran(tmp_path):
    few, many = ("task.train_samples=50",), ("task.train_samples=100",)
    plain = over_tasks(tmp_path, "none", lambda *_: PLAIN, rte=[few, many], mrpc=[many, few])
    scores = {few[0]: [0.6, 0.61, 0.615, 0.62, 0.635], many[0]: BETTER}
    ours = over_tasks(tmp_path, "cosine", scores.get, rte=[few, many], mrpc=[many, few])
    found = build_report(experiment(), [*plain, *ours]).methods.query("method == 'cosine'")["difference"]
    assert sorted(found.round(1)) == pytest.approx([-6.9, 8.0])


def test_a_number_that_gives_the_printed_digits_agrees():
    for ours, printed, agrees in ((81.22549, "81.22", True), (0.0, "0", True), (81.29, "81.22", False)):
        target = PrintedNumber(printed)
        target.text = printed
        assert matches_printed(ours, target) == agrees


def test_a_report_of_isotropies_alone_has_a_verdict(tmp_path):
    common = ("task=wnli", "encoder=bert-base-cased", "calibration=cosine")
    rows = [row(tmp_path, 0.5, *common, f"seed={seed}") for seed in (1, 2)]
    report = build_report(Experiment("glue_calibration", "isotropy_calibration", ["table4"]), rows)
    assert report.verdict
    assert report.methods.empty


def test_methods_whose_grids_differ_in_size_are_compared(tmp_path):
    laptop = ("+experiment=glue_isobn", "scale=laptop", "task=rte", "encoder=minilm")
    rows = [
        row(tmp_path, score, *laptop, f"calibration={method}", f"seed={seed}")
        for method, scores in (("none", PLAIN), ("isobn_paper", BETTER))
        for seed, score in enumerate(scores, 1)
    ]
    report = build_report(rows[0].cfg.experiment, rows)
    assert report.runs["scale"].nunique() == 2  # 1 of 6 configurations, and 1 of 18
    assert cells(report)["isobn_paper"].difference == pytest.approx(8.0)


def test_the_papers_average_and_the_numbers_that_it_repeats(tmp_path):
    large = "encoder=roberta-large"
    rows = [*runs(tmp_path, "none", PLAIN, large), *runs(tmp_path, "isobn_paper", BETTER, large)]
    report = build_report(experiment(), rows)
    (view,) = report.views
    assert view.columns == ["Avg", "RTE"]
    average = cells(report, "Avg")["isobn_paper"]
    assert (average.ours, average.published, average.published_of) == ("1 of 7 columns", "88.98", "roberta-large")
    assert (average.verdict, average.compared, average.values) == ("not comparable", False, [])
    (reported,) = (line for line in view.lines if line.is_reported)
    assert {name: cell.published for name, cell in reported.cells.items()} == {"Avg": "88.46", "RTE": "86.6"}
    assert r"| roberta-large | Reported (isobn\_arxiv\_v1) | \[88.46\] | \[86.6\] |  |" in format_markdown(report)
    assert r"roberta-large & Reported (isobn\_arxiv\_v1) & {}[88.46] & {}[86.6] \\" in format_latex(report)
    assert list(report.comparisons["tasks"]) == ["RTE"]
    assert list(report.comparisons["in print"]) == ["+2.53 (roberta-large)"]


def test_a_setting_that_some_runs_leave_unset_tells_configurations_apart():
    runs = pd.DataFrame({"task": "t", "encoder": "e", "method": "m", "calibration.keep_norm": [None, True]})
    names = find_varying(runs, ["calibration.keep_norm"])
    assert names == ["calibration.keep_norm"]
    assert [describe_choice(names, [value]) for value in runs[names[0]]] == ["keep_norm=null", "keep_norm=True"]
