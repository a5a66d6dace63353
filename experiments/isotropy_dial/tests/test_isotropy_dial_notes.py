"""The notes of the dose-response study, and what its page and appendix say of its results."""

import pandas as pd
from dial_study import DOSES
from helpers import ROOT, assert_contains

from isobench.statistics.dose_response import average_over_seeds
from isobench_papers.isotropy_dial import analysis as dial_analysis
from isobench_papers.isotropy_dial.rows import DIALS, collect_series

STUDY = ROOT / "experiments/isotropy_dial"
ENCODERS = {"minilm": "MiniLM", "distilbert-quire": "DistilBERT", "minilm, stsb": "MiniLM, STS-B"}
LABELS = {dial.name: dial.short_label for dial in DIALS if dial.name in DOSES}  # of the first registration


def test_seeds_without_a_dose_are_left_out_of_this_dial_and_named(study):
    study.find("istar", -3, 2).record = None
    study.find("istar", 4, 5).record.status = "failed"
    study.find("istar", 3, 5).record.best.metrics = lambda _: {}  # one number for all: no correlation
    study.find("istar", 1, 5).record = study.find("istar", 2, 5).record = None
    for subject in study.subjects:
        if subject.cfg.seed == 6:
            subject.record = None
    rows = dial_analysis.compute(study.subjects)
    series = collect_series(rows["doses"], DIALS[1])
    assert series.seeds == [1, 3, 4]
    assert series.left_out == {
        2: "dose -3 not yet run",
        5: "doses 1, 2 not yet run, doses 3, 4 failed",
        6: "not yet run",
    }
    seeds = {row["dial"]: row["seeds"] for row in rows["slopes"] if row["quantity"] == "score"}
    assert seeds == {"isobn": 5, "istar": 3, "cosine": 5, "whitening": 5}
    across = [row["seeds"] for row in rows["correlations"] if row["measure"] == "embedding/i2" and not row["dial"]]
    assert across == [3, 3, 3]
    assert "INCOMPLETE: 146 of 300 runs finished, 1 failed" in " ".join(dial_analysis.show(rows).text.split())


def write_p(p):
    return "< 0.0001" if p < 0.0001 else f"{p:.2g}" if p < 0.1 else f"{p:.2f}"


def list_ends(slopes, doses, **_):
    holm = slopes[(slopes.doses == "all doses") & (slopes.quantity == "score")].set_index(["dial", "encoder"]).p_holm
    for dial, encoder in ((dial, encoder) for dial in LABELS for encoder in ENCODERS):
        own = doses[(doses.dial == dial) & (doses.encoder == encoder)].set_index(["dose", "seed"]).sort_index()
        first, last = (own.loc[dose] for dose in (own.index.min()[0], own.index.max()[0]))
        change = average_over_seeds((last.score - first.score).to_numpy())
        isoscores = ", ".join(f"{end['embedding/isoscore'].mean():.3f}" for end in (first, last))
        interval = f"{change.value:+.2f} [{change.low:+.2f}, {change.high:+.2f}]"
        yield ENCODERS[encoder], isoscores, interval, write_p(holm[dial, encoder])


def test_the_studys_page_has_the_numbers_of_the_bundle():
    shipped = {}
    for name in ("doses", "slopes", "contrasts"):
        table = pd.read_parquet(STUDY / f"results/isotropy_dial/analysis/{name}.parquet")
        shipped[name] = table.assign(encoder=table.encoder.where(table.task != "stsb", table.encoder + ", stsb"))
    part_b = pd.read_parquet(STUDY / "results/isotropy_norm/analysis/contrasts.parquet")
    page = " ".join((STUDY / "README.md").read_text().split())
    rows = [f"| {' | '.join(cells)} |" for cells in list_ends(**shipped)]
    assert [row for row in rows if row not in page] == []
    gains = shipped["contrasts"].query("against == 'none'").set_index(["dial", "dose", "encoder"]).sort_index()
    mild = gains.loc["whitening", 5].drop("minilm, stsb")
    (found,) = gains.drop("whitening").query("p_holm < 0.05").itertuples()
    assert found.Index == ("istar", 5, "minilm")
    cost = -gains.difference["whitening", 0]
    kept = -part_b.set_index(["dial", "dose", "encoder"]).sort_index().difference["whitening_norm", 0]
    assert_contains(
        page,
        *(f"{own['minilm']:.2f} points with MiniLM and {own['distilbert-quire']:.2f} with" for own in (cost, kept)),
        f"{cost['minilm, stsb']:.2f} with MiniLM on STS-B",
        *(f"{one.difference:+.2f} [{one.low:+.2f}, {one.high:+.2f}]" for one in mild.itertuples()),
        f"MiniLM {-found.difference:.2f} points",
    )
