"""The notes of the dose-response study, and what its page and appendix say of its results."""

import re

import pandas as pd
import pytest
from dial_study import DOSES
from helpers import ROOT, assert_contains

from isobench.statistics.dose_response import average_over_seeds
from isobench_papers.isotropy_dial import analysis as dial_analysis
from isobench_papers.isotropy_dial.rows import (
    DIAL,
    DIALS,
    GIVEN_DIAL,
    GIVEN_DOSE,
    MEASURES,
    MORE_ISOTROPIC,
    PLAIN,
    collect_series,
)

STUDY = ROOT / "experiments/isotropy_dial"
ENCODERS = {"minilm": "MiniLM", "distilbert-quire": "DistilBERT", "minilm, stsb": "MiniLM, STS-B"}
SHOWN_OF_STSB = r"IsoBN beta=(0.5|1)|I-STAR strength=-?1|cosine strength=1|whitening .*"
LABELS = {dial.name: dial.short_label for dial in DIALS if dial.name in DOSES}  # of the first registration


def test_seeds_without_a_dose_are_left_out_of_this_dial_and_named(study):
    study.find("istar", -3, 2).record = None
    study.find("istar", 4, 5).record.status = "failed"
    study.find("istar", 1, 5).record = study.find("istar", 2, 5).record = None
    for subject in study.subjects:
        if subject.cfg.seed == 6:
            subject.record = None
    rows = dial_analysis.compute(study.subjects)
    series = collect_series(rows["doses"], DIALS[1])
    assert series.seeds == [1, 3, 4]
    assert series.left_out == {2: "dose -3 not yet run", 5: "doses 1, 2 not yet run, dose 4 failed", 6: "not yet run"}
    seeds = {row["dial"]: row["seeds"] for row in rows["slopes"] if row["quantity"] == "score"}
    assert seeds == {"isobn": 5, "istar": 3, "cosine": 5, "whitening": 5}
    across = [row["seeds"] for row in rows["correlations"] if row["measure"] == "embedding/i2" and not row["dial"]]
    assert across == [3, 3, 3]
    assert "INCOMPLETE: 146 of 300 runs finished, 1 failed" in " ".join(dial_analysis.show(rows).text.split())


@pytest.fixture(scope="module")
def shipped():
    tables = {}
    for name in ("doses", "slopes", "correlations", "left_out_cells", "contrasts", "verdicts"):
        table = pd.read_parquet(STUDY / f"results/isotropy_dial/analysis/{name}.parquet")
        tables[name] = table.assign(encoder=table.encoder.where(table.task != "stsb", table.encoder + ", stsb"))
    isoscores = tables["doses"].groupby(["encoder", "dial", "dose"])["embedding/isoscore"].mean()
    gains = tables["contrasts"].dropna(subset="p")
    tables["gains"] = gains.assign(
        setting=[DIAL[row.dial].name_cell(row.dose) for row in gains.itertuples()],
        isoscore=[isoscores[row.encoder, row.dial, row.dose] for row in gains.itertuples()],
        plain=[isoscores[encoder, "isobn", 0] for encoder in gains.encoder],
    )
    return tables


def write_p(p):
    return "< 0.0001" if p < 0.0001 else f"{p:.2g}" if p < 0.1 else f"{p:.2f}"


def write_range(values, write):
    return " to ".join(dict.fromkeys([write(values.min()), write(values.max())]))


def list_table_rows(slopes, correlations, left_out_cells, gains, **_):
    of_all = slopes[slopes.doses == "all doses"].set_index(["dial", "encoder", "quantity"]).sort_index()
    papers = {"isobn": "a gain", "istar": "a loss", "cosine": "no change", "whitening": "-"}
    places = [(dial, encoder) for dial in LABELS for encoder in ENCODERS]
    for dial, encoder in places:
        row, p = of_all.loc[dial, encoder, "score"], of_all.loc[dial, encoder].p
        change = f"{row.over_dial:+.2f} [{row.over_low:+.2f}, {row.over_high:+.2f}]"
        check = ["yes" if p[f"embedding/{name}"] < 0.05 else "no" for name in ("ev1", "isoscore")]
        yield LABELS[dial], ENCODERS[encoder], change, write_p(row.p_holm), ", ".join(check), papers[dial]
    for (measure, encoder), own in correlations.groupby(["measure", "encoder"]):
        found = own.set_index(own.dial + own.kind.where(own.dial == "", "")).rename_axis(None)
        given, dose = found.loc[GIVEN_DIAL], found.loc[GIVEN_DOSE]
        interval = f"{given.correlation:+.2f} [{given.low:+.2f}, {given.high:+.2f}]"
        cells = [*(f"{found.correlation[dial]:+.2f}" for dial in LABELS), interval, write_p(given.p_holm)]
        yield MEASURES[measure], ENCODERS[encoder], *cells, f"{dose.correlation:+.2f}", write_p(dose.p)
    for row in gains.itertuples():
        chosen = {"rotten_tomatoes": r"I-STAR strength=1|whitening epsilon=(0.0001|0.1|1)", "stsb": SHOWN_OF_STSB}
        if re.fullmatch(chosen[row.task], row.setting):
            change = f"{row.difference:+.2f} [{row.low:+.2f}, {row.high:+.2f}]"
            cells = f"{row.isoscore:.3f} ({row.plain:.3f})", change, write_p(row.p), write_p(row.p_holm)
            yield row.setting, ENCODERS[row.encoder], *cells
    estimates = left_out_cells.assign(estimate=left_out_cells.correlation.fillna(left_out_cells.over_dial))
    for (encoder, measure, dial), own in estimates.groupby(["encoder", "measure", "dial"]):
        whole = own.iloc[0]
        other = own[(own.p_holm < 0.05) != (whole.p_holm < 0.05)]
        if len(other):
            name = MEASURES[measure] if measure else f"slope of {LABELS[dial]}"
            then = write_range(other.estimate, "{:+.2f}".format), write_range(other.p_holm, write_p)
            all_cells = f"{whole.estimate:+.2f}", write_p(whole.p_holm)
            yield name, ENCODERS[encoder], *all_cells, "; ".join(other.left_out), *then


def list_ends(slopes, doses, **_):
    holm = slopes[(slopes.doses == "all doses") & (slopes.quantity == "score")].set_index(["dial", "encoder"]).p_holm
    for dial, encoder in ((dial, encoder) for dial in LABELS for encoder in ENCODERS):
        own = doses[(doses.dial == dial) & (doses.encoder == encoder)].set_index(["dose", "seed"]).sort_index()
        first, last = (own.loc[dose] for dose in (own.index.min()[0], own.index.max()[0]))
        change = average_over_seeds((last.score - first.score).to_numpy())
        isoscores = ", ".join(f"{end['embedding/isoscore'].mean():.3f}" for end in (first, last))
        interval = f"{change.value:+.2f} [{change.low:+.2f}, {change.high:+.2f}]"
        yield ENCODERS[encoder], isoscores, interval, write_p(holm[dial, encoder])


def test_the_studys_page_has_the_numbers_of_the_bundle(shipped, part_b):
    page = " ".join((STUDY / "README.md").read_text().split())
    rows = [f"| {' | '.join(cells)} |" for cells in list_ends(**shipped)]
    assert [row for row in rows if row not in page] == []
    gains = shipped["contrasts"].query("against == 'none'").set_index(["dial", "dose", "encoder"]).sort_index()
    mild = gains.loc["whitening", 5].drop("minilm, stsb")
    (found,) = gains.drop("whitening").query("p_holm < 0.05").itertuples()
    assert found.Index == ("istar", 5, "minilm")
    cost = -gains.difference["whitening", 0]
    kept = -part_b["contrasts"].set_index(["dial", "dose", "encoder"]).sort_index().difference["whitening_norm", 0]
    assert_contains(
        page,
        *(f"{own['minilm']:.2f} points with MiniLM and {own['distilbert-quire']:.2f} with" for own in (cost, kept)),
        f"{cost['minilm, stsb']:.2f} with MiniLM on STS-B",
        *(f"{one.difference:+.2f} [{one.low:+.2f}, {one.high:+.2f}]" for one in mild.itertuples()),
        f"MiniLM {-found.difference:.2f} points",
    )


def test_the_appendix_has_the_numbers_of_the_bundle(shipped):
    page = " ".join((STUDY / "appendix.md").read_text().split())
    rows = [f"| {' | '.join(cells)} |" for cells in list_table_rows(**shipped)]
    assert [row for row in rows if row not in page] == []
    shown = re.findall(r"\| (?:MiniLM|DistilBERT|MiniLM, STS-B) \|", page.partition("**Part B")[0])
    assert len(shown) == len(rows) == 12 + 18 + 8 + 12 + 10

    slopes, correlations, gains = shipped["slopes"], shipped["correlations"], shipped["gains"]
    found = correlations[correlations.p_holm < 0.05]
    assert (sum(slopes.p_holm < 0.05), slopes.p_holm.count()) == (5, 12)
    assert (len(found), correlations.p_holm.count()) == (5, 18)
    assert (found.correlation * found.measure.map(MORE_ISOTROPIC) > 0).all()
    equivalent = gains[gains.encoder.str.endswith("stsb") & (gains.p_margin_holm < 0.05)]
    assert (len(equivalent), set(equivalent.dial)) == (16, {"isobn", "istar", "cosine"})
    gains = gains[gains.task == "rotten_tomatoes"]
    assert (len(gains), set(gains.seeds)) == (57, {10})
    losses = gains[gains.p_holm < 0.05]
    assert (losses.difference < 0).all()
    assert {encoder: set(own.setting) for encoder, own in losses.groupby("encoder")} == {
        "minilm": {"I-STAR strength=1", *(f"whitening epsilon={e}" for e in ("0", "0.0001", "0.001", "0.01"))},
        "distilbert-quire": {f"whitening epsilon={e}" for e in ("0", "0.0001", "0.001")},
    }

    verdicts = shipped["verdicts"].set_index("statement")
    follows = verdicts[verdicts.index.str.contains("follows")]
    assert list(follows.index[follows.verdict == "supported"]) == ["the score follows effective rank"]
    assert set(follows.verdict) == {"supported", "can't tell"}
    for row in verdicts.drop(follows.index).itertuples():
        assert f"{row.Index} | {row.verdict} |" in page


@pytest.fixture(scope="module")
def part_b():
    names = ("slopes", "correlations", "contrasts", "verdicts", "left_out_cells")
    return {name: pd.read_parquet(STUDY / f"results/isotropy_norm/analysis/{name}.parquet") for name in names}


def list_rows_of_part_b(slopes, correlations, contrasts, verdicts, left_out_cells):
    for row in verdicts.itertuples():
        yield row.statement, ENCODERS[row.encoder], row.verdict
    dials = {"whitening_norm": "norm kept", "norm_effect": "kept less not kept"}
    whole = slopes[slopes.doses == "all doses"].set_index(["dial", "encoder", "quantity"]).sort_index()
    for dial, encoder in ((dial, encoder) for dial in dials for encoder in contrasts.encoder.unique()):
        row, p = whole.loc[dial, encoder, "score"], whole.loc[dial, encoder].p
        check = ", ".join("yes" if p[f"embedding/{name}"] < 0.05 else "no" for name in ("ev1", "isoscore"))
        change = f"{row.over_dial:+.2f} [{row.over_low:+.2f}, {row.over_high:+.2f}]"
        yield dials[dial], ENCODERS[encoder], change, write_p(row.p_holm), check
    by_cell = contrasts.set_index(["encoder", "dose", "dial"])
    for encoder, dose in contrasts.set_index(["encoder", "dose"]).index.unique():
        kept, effect = (by_cell.loc[encoder, dose, dial] for dial in dials)
        changes = [f"{row.difference:+.2f} [{row.low:+.2f}, {row.high:+.2f}]" for row in (kept, effect)]
        tests = write_p(kept.p_holm), write_p(kept.p_margin_holm), changes[1], write_p(effect.p_holm)
        yield f"{DIAL['whitening'].read_value(dose):g}", ENCODERS[encoder], changes[0], *tests
    given_what = correlations.dial.where(correlations.dial != "", "given dose")
    found = correlations.set_index(["measure", "encoder", given_what])
    without = left_out_cells.query("measure != '' and left_out != ''").groupby(["measure", "encoder", "dial"])
    ends = without.correlation.agg(["min", "max"])
    for measure, encoder in dict.fromkeys((measure, encoder) for measure, encoder, _ in found.index):
        kept, effect, given = (found.loc[measure, encoder, dial] for dial in (*dials, "given dose"))
        change = f"{effect.correlation:+.2f} [{effect.low:+.2f}, {effect.high:+.2f}]"
        low, high = ends.loc[measure, encoder, "whitening_norm"]
        cells = f"{kept.correlation:+.2f}", f"{low:+.2f} to {high:+.2f}", change
        seeds = f" ({given.seeds} of {kept.seeds} seeds)" if given.seeds < kept.seeds else ""
        yield MEASURES[measure], ENCODERS[encoder], *cells, f"{given.correlation:+.2f}{seeds}", write_p(given.p)


def test_the_appendix_has_the_numbers_of_part_b(part_b):
    page = " ".join((STUDY / "appendix.md").read_text().partition("**Part B")[2].split())
    rows = [f"| {' | '.join(cells)} |" for cells in list_rows_of_part_b(**part_b)]
    assert [row for row in rows if row not in page] == []
    assert len(re.findall(r"\| (?:MiniLM|DistilBERT) \|", page)) == len(rows) == 6 + 4 + 14 + 12

    contrasts = part_b["contrasts"]
    above = contrasts[(contrasts.against == PLAIN) & (contrasts.p_holm < 0.05) & (contrasts.difference > 0)]
    assert list(zip(above.encoder, above.dose, strict=True)) == [("distilbert-quire", 5), ("distilbert-quire", 6)]
