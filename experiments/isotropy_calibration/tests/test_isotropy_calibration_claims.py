"""The factors of training time that the paper claims: as its text prints them, and by its tables."""

from isobench.papers.published import load_tables
from isobench.report.checks import TOLERANCE
from isobench_papers.isotropy_calibration.claims import CLAIMS


def test_the_papers_own_minutes_agree_with_the_factors_of_the_claims():
    tables = load_tables("isotropy_calibration")

    def minutes(table, row):
        (rows,) = tables[table].cells.values()
        return [values[0] for column, values in rows[row].items() if tables[table].columns[column].time]

    for table, claimed in (("table2", 10.5), ("table3", 5.5)):
        (rows,) = tables[table].cells.values()
        small = [c for c in tables[table].columns if "k " in c and tables[table].columns[c].time]
        plain = [rows["plain"][column][0] for column in small]
        for ours, base in zip(minutes(table, "flow"), plain, strict=True):
            least, most = (ours - 0.5) / (base + 0.5), (ours + 0.5) / (base - 0.5)
            assert claimed / TOLERANCE < least < most < claimed * TOLERANCE
    ratios = [
        round(ours / base, 2)
        for row in ("spectrum_pol", "spectrum_exp")
        for ours, base in zip(minutes("table2", row), minutes("table2", "plain")[:2], strict=True)
    ]
    assert (min(ratios), max(ratios)) == (1.31, 1.63)
    texts = " ".join(claim.text for claim in CLAIMS)
    assert [f"{factor} times" in texts for factor in (4.2, 10.5, 5.5)] == [True] * 3


def test_the_factors_are_in_the_papers_text(papers):
    text = " ".join((papers / "isotropy_calibration.txt").read_text().split())
    for words in (
        "requiring on average 4.2 times more time per training epoch",
        "requires on average 10.5 times more computation per epoch",
        "requires 5.5 times more computation",
        "while requiring 25% to 50% more computation",
        "Finetuning time is reported on a Nvidia Titan RTX GPU",
    ):
        assert words in text
