"""Reports of translation, from made-up records: columns and times."""

from helpers import make_config, make_ended_run

from isobench.config.schema import Experiment
from isobench.report.build import build_report

MT = Experiment("mt_calibration", "isotropy_calibration", ["table2"])
PLAIN = [0.26, 0.261, 0.262]
ISOTROPY = {"head/i1": 0.2, "head/i1_printed": 0.88, "head/i2_printed": 0.6, "head/i1_symmetric": 0.1}
COST = {"seconds": 60 * 108 * 5 + 900, "training_seconds": 60 * 108 * 5}  # 108 minutes an epoch


def cells_of(**tasks):
    """Report plain fine-tuning's runs of five epochs, ``tasks``: task -> scores; returns column -> cell."""
    rows = []
    for task, scores in tasks.items():
        settings = (f"task={task}", "encoder=mbart-large-cc25", "calibration=none")
        for seed, score in enumerate(scores, 1):  # other metrics are fractions of it
            metrics = {name: score / n for n, name in enumerate(make_config(*settings).task.metrics, 1)}
            more = {"metrics": metrics | {"loss": 1.75}, "isotropy": ISOTROPY, "cost": COST, "epochs": 5}
            rows.append(make_ended_run(score, *settings, f"seed={seed}", **more))
    return {cell.column: cell for cell in build_report(MT, rows, with_pairs=False).cells.itertuples()}


def test_the_columns_of_a_task_are_its_score_isotropies_and_time():
    cells = cells_of(wmt16_en_ro=PLAIN)
    shown = {column: (cell.ours, cell.published, cell.kind) for column, cell in cells.items()}
    assert shown == {
        "EN-RO BLEU": ("26.10 ± 0.10", "26.15 ± 0.08", "score"),
        "EN-RO I1": ("0.880 ± 0.000", "0.88 ± 0.01", "isotropy"),
        "EN-RO I2": ("0.600 ± 0.000", "0.60 ± 0", "isotropy"),
        "EN-RO Time": ("108 ± 0.00", "108 ± 0", "time"),
    }


def test_a_million_pairs_and_all_pairs_are_both_compared_with_the_papers_de_en():
    cells = cells_of(wmt16_de_en_1m=PLAIN, wmt16_de_en=[0.2251, 0.2251, 0.2251])
    part, whole = cells["DE-EN BLEU"], cells["DE-EN BLEU (wmt16_de_en)"]
    assert part.published == whole.published == "22.81 ± 0.35"
    assert (part.verdict, part.why) == ("above", "+3.29, spread 0.35")
    assert (whole.verdict, whole.why[:19]) == ("within", "-0.30, spread 0.35;")
