"""Tables of common_frequency: our numbers beside those in the text of Too Much in Common (Bis et al. 2021)."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from isobench.analyses.findings import make_table
from isobench.analyses.rows import select_rows

SettingList = Sequence[Mapping[str, Any]]


def build_similarity_table(rows: list[dict[str, Any]], ranges: SettingList) -> Table:
    """Build the table of mean cosines in the ranges that the paper prints, a row for each encoder and its vectors."""
    headings = [f"ids {token_range['first']}-{token_range['end']}" for token_range in ranges]
    title = "Too Much in Common, Section 4.2: mean cosine"
    table = make_table(title, ("", "encoder", "vectors"), headings, wrap_numbers=True)
    for encoder, vectors in dict.fromkeys((row["encoder"], row["vectors"]) for row in rows):
        own_rows = select_rows(rows, {"encoder": encoder, "vectors": vectors})
        by_first = {row["first"]: row for row in own_rows}
        cells = [format_range_cell(by_first.get(token_range["first"]), token_range["end"]) for token_range in ranges]
        table.add_row("ours", encoder, vectors, *cells)
    table.add_section()
    printed = (str(token_range["published"]) for token_range in ranges)
    table.add_row("paper", "BERT", "raw", *printed, style="dim")
    return table


def format_range_cell(row: Mapping[str, Any] | None, end: int) -> str:
    """Format a mean cosine; add where its range ended if the vocabulary cut it before ``end``."""
    if row is None or row["cosine"] is None:
        return "-"
    return f"{row['cosine']:.2f}" + (f" (to {row['end']})" if row["end"] < end else "")


def build_frequency_table(rows: list[dict[str, Any]], heads: SettingList, coverage: Mapping[str, Any]) -> Table:
    """Build the table of the corpus's summary, beside the numbers of Section 2.2."""
    headings = ["types", "occurrences", *(f"top {head['types']}" for head in heads)]
    headings += [f"for {coverage['share']:.0%}", "s, least squares", "s, likelihood"]
    title = "Too Much in Common, Section 2.2 and Figure 4"
    table = make_table(title, ("", "unit"), headings, wrap_numbers=True)
    for row in rows:
        shares = [f"{row[make_share_key(head)]:.1%}" for head in heads]
        exponents = [f"{row[name]:.2f}" for name in ("zipf_least_squares", "zipf_likelihood")]
        totals = (f"{row[name]:,}" for name in ("types", "occurrences"))
        table.add_row("ours", row["unit"], *totals, *shares, f"{row['types_covering']:,}", *exponents)
    table.add_section()
    printed = [str(head["published"]) for head in heads]
    table.add_row("paper", "tokens, BERT", "-", "-", *printed, str(coverage["published"]), "-", "-", style="dim")
    return table


def make_share_key(head: Mapping[str, Any]) -> str:
    """Name the column with a head's share of the corpus."""
    return f"share_of_{head['types']}"
