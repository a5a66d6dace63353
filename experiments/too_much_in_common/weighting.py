"""Vocabularies centred and whitened with all words alike and by their frequency, each measured in both ways.

Yokoi et al. (2024), Zipfian Whitening: a word's weight is its share of a corpus. It goes beyond Too Much in Common.
"""

from typing import Any

from rich.table import Table
from torch import Tensor

from isobench.analyses.findings import make_table
from isobench.calibration import center, whiten
from isobench.metrics.weighted import weighted_isotropy

VECTORS = ("raw", "centred", "zipf_centred", "whitened", "zipf_whitened")
# Heading -> measure and decimals, each with uniform weights and with the counts of a corpus.
COLUMNS = {"ratio": ("mean_ratio", 2), "avg cos": ("average_cosine", 2)}
COLUMNS |= {"EV1": ("ev1", 3), "IsoScore": ("isoscore", 3)}


def weight_vectors(matrix: Tensor, vectors: str, counts: Tensor) -> Tensor:
    """Return one of ``VECTORS`` of an embedding matrix, [V, d], with counts [V] of its words."""
    if vectors == "raw":
        return matrix
    weights = counts if vectors.startswith("zipf_") else None
    return center(matrix, weights) if vectors.endswith("centred") else whiten(matrix, weights=weights)


def measure_weighted(encoder: str, matrix: Tensor, counts: Tensor) -> list[dict[str, Any]]:
    """Measure the isotropy of a vocabulary as it is, centred and whitened; a tidy row for each and each weighting.

    Args:
        encoder: name for the rows.
        matrix: its embeddings, [V, d] float64.
        counts: of the words in a corpus, [V].
    """
    rows = []
    for vectors in VECTORS:
        embeddings = weight_vectors(matrix, vectors, counts)
        for weighting, weights in (("uniform", counts.new_ones(len(counts))), ("zipf", counts)):
            name = {"encoder": encoder, "vectors": vectors, "weighting": weighting}
            rows.append({**name, **weighted_isotropy(embeddings, weights)})
    return rows


def build_weighting_table(rows: list[dict[str, Any]]) -> Table:
    """Build the table of both weightings' measures, side by side: a row for each encoder and kind of vectors."""
    headings = [heading for name in COLUMNS for heading in (name, f"{name}, Zipf")]
    table = make_table("All words alike, and by their frequency", ("encoder", "vectors"), headings, wrap_numbers=True)
    measures = {(row["encoder"], row["vectors"], row["weighting"]): row for row in rows}
    for encoder, vectors in dict.fromkeys(key[:2] for key in measures):
        pair = [measures[encoder, vectors, weighting] for weighting in ("uniform", "zipf")]
        cells = [f"{row[measure]:z.{digits}f}" for measure, digits in COLUMNS.values() for row in pair]
        table.add_row(encoder, vectors, *cells)
    return table


def explain_weighting(text_count: int, corpus: str) -> str:
    """Write the note below the table."""
    return (
        f"Zipf: a word's weight is how often its token occurs in {text_count:,} texts of {corpus}, in the means and "
        "covariances of zipf_centred and zipf_whitened and in the columns (Yokoi et al. 2024; not in the paper)."
    )
