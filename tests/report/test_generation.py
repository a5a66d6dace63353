"""Reports of translation, from made-up records: columns and times."""

from helpers import make_config, make_ended_run

from isobench.config.schema import Experiment
from isobench.report.build import build_report
from isobench.runs.run import Run

MT = Experiment("mt_calibration", "isotropy_calibration", ["table2"])


def row(score, *overrides, minutes=108.0, epochs=5, **kinds) -> Run:
    """A run whose metrics are ``score`` and fractions of it, with the time of an epoch in minutes."""
    metrics = {name: score / place for place, name in enumerate(make_config(*overrides).task.metrics, 1)}
    isotropy = {"head/i1": 0.2, "head/i1_printed": 0.88, "head/i2_printed": 0.6, "head/i1_symmetric": 0.1}
    cost = {"seconds": 60 * minutes * epochs + 900, "training_seconds": 60 * minutes * epochs}
    return make_ended_run(
        score, *overrides, metrics=metrics | {"loss": 1.75}, isotropy=isotropy, epochs=epochs, cost=cost, **kinds
    )


def runs(method, scores, task="wmt16_en_ro", encoder="mbart-large-cc25", minutes=(108.0, 108.0, 108.0), **kinds):
    common = (f"task={task}", f"encoder={encoder}", f"calibration={method}")
    pairs = zip(scores, minutes, strict=False)
    return [row(score, *common, f"seed={n}", minutes=m, **kinds) for n, (score, m) in enumerate(pairs, 1)]


def cells_of(rows):
    """(method, column) -> cell."""
    report = build_report(MT, rows, with_pairs=False)
    return {(cell.method, cell.column): cell for cell in report.cells.itertuples()}


PLAIN, BETTER = [0.26, 0.261, 0.262], [0.281, 0.28, 0.282]


def test_the_columns_of_a_task_are_its_score_isotropies_and_time():
    cells = cells_of(runs("none", PLAIN))
    shown = {column: (cell.ours, cell.published, cell.kind) for (_, column), cell in cells.items()}
    assert shown == {
        "EN-RO BLEU": ("26.10 ± 0.10", "26.15 ± 0.08", "score"),
        "EN-RO I1": ("0.880 ± 0.000", "0.88 ± 0.01", "isotropy"),
        "EN-RO I2": ("0.600 ± 0.000", "0.60 ± 0", "isotropy"),
        "EN-RO Time": ("108 ± 0.00", "108 ± 0", "time"),
    }


def test_a_million_pairs_and_all_pairs_are_both_compared_with_the_papers_de_en():
    rows = [*runs("none", PLAIN, "wmt16_de_en_1m"), *runs("none", [0.2251, 0.2251, 0.2251], "wmt16_de_en")]
    cells = cells_of(rows)
    part, whole = cells["none", "DE-EN BLEU"], cells["none", "DE-EN BLEU (wmt16_de_en)"]
    assert part.published == whole.published == "22.81 ± 0.35"
    assert (part.verdict, part.why) == ("above", "+3.29, spread 0.35")
    assert (whole.verdict, whole.why[:19]) == ("within", "-0.30, spread 0.35;")
