"""Too Much in Common (Bis et al. 2021), Table 1, Section 5.3, Figures 1, 2, 5, 6: vocabularies and their centring."""

import math
from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor
from typing_extensions import TypedDict

from isobench.analyses.findings import Findings, RowLabel, build_comparison_tables
from isobench.analyses.setting_checks import ROUNDINGS, check_no_calibration
from isobench.analyses.subject import Subject, collect_scale_notes, iterate_subjects
from isobench.calibration import all_but_the_top, center
from isobench.common.linalg import PIECE_ROWS, gram, row_mean, row_norms, to_float64
from isobench.config.bounds import NOT_EMPTY, PositiveInt, one_of
from isobench.metrics import IsotropyAccumulator, partition_isotropy
from isobench.metrics.partition import orient_eigenvectors
from isobench.papers import published
from isobench_papers.too_much_in_common import isotropy_figures as common_isotropy_figures
from isobench_papers.too_much_in_common.token_counts import count_rows, open_analysis_corpus
from isobench_papers.too_much_in_common.vocabulary import VocabularyMeasures
from isobench_papers.too_much_in_common.weighting import build_weighting_table, explain_weighting, measure_weighted

PAPER, TABLE = "too_much_in_common", "table1"
# Column -> measure and decimals: the columns that Table 1 prints, then more of our own.
TABLE1_COLUMNS = {"I(W)": ("i1_raw", 2), "I(Wc)": ("i1_centred", 2), "I(Wr)": ("i1_removed", 3)}
TABLE1_COLUMNS |= {"avg norm": ("average_norm", 2), "mean norm": ("mean_norm", 2), "ratio": ("mean_ratio", 2)}
TABLE1_COLUMNS |= {"EV1": ("ev1", 3), "IsoScore": ("isoscore", 3)}
# The same for the numbers that Section 5.3 gives in its text, for RoBERTa-large alone.
SECTION = "section5_3"
SECTION_COLUMNS = {"avg cos": ("average_cosine", 2), "cos(mean, top)": ("cosine_of_mean_and_top", 2)}
DENSITY_POINTS = 300


class Toy(TypedDict):
    """Unit spheres in three dimensions, for Figure 2."""

    points: PositiveInt  # on each sphere
    shifts: Annotated[list[float], NOT_EMPTY]  # of the spheres' centres from the origin


def analyse(
    subjects: list[Subject],
    removed: Annotated[str, one_of(*ROUNDINGS)],
    toy: Toy,
    corpus: str | None = None,
    texts: PositiveInt | None = None,
) -> Findings:
    """Measure the isotropy of input embeddings: raw, centred, and without their top principal components.

    Args:
        subjects: encoders.
        removed: ``ceil`` or ``floor``: how d / 100, the number of components removed for I(Wr), is rounded.
        toy: the spheres of Figure 2.
        corpus: name of a corpus of ``corpus.py`` whose tokens are counted, to centre, whiten and measure
            the vocabularies by the frequency of their words too; None for not.
        texts: read only so many texts from the corpus's start; None for all.

    Raises:
        UserError: a calibration is set, or the corpus is missing.
    """
    check_no_calibration(subjects)
    counted = open_analysis_corpus(subjects, corpus, texts)
    vocabularies, weighted = [], []
    for subject in iterate_subjects(subjects, "vocabularies"):
        matrix = to_float64(subject.vocabulary())
        counts = count_rows(subject, counted, len(matrix)) if counted else None
        subject.release()  # the rest of the encoder is not needed, and large
        vocabularies.append(measure_vocabulary(subject.encoder, matrix, removed))
        if counts is not None:
            weighted += measure_weighted(subject.encoder, matrix, counts)
    spheres = sample_toy_spheres(toy["points"], toy["shifts"], subjects[0].cfg.seed)
    densities = estimate_norm_densities(vocabularies)
    return Findings(
        numbers={
            "isotropy": [{"encoder": vocabulary.encoder, **vocabulary.measures} for vocabulary in vocabularies],
            "singular_values": build_singular_value_rows(vocabularies),
            "norm_density": densities,
            "toy_singular_values": build_toy_rows(spheres),
            **({"weighted_isotropy": weighted} if weighted else {}),
        },
        figures={
            "figure1": common_isotropy_figures.draw_figure1(vocabularies),
            "figure2": common_isotropy_figures.draw_figure2(spheres, build_toy_rows(spheres)),
            "figure5": common_isotropy_figures.draw_figure5(densities),
            "figure6": common_isotropy_figures.draw_figure6(densities),
        },
        tables=[
            *build_comparison_tables(
                "Too Much in Common, Table 1", ("encoder",), format_cells(vocabularies, TABLE1_COLUMNS), PAPER, TABLE
            ),
            *build_comparison_tables(
                "Too Much in Common, Section 5.3: average cosine, and cosine of the mean with the top eigenvector",
                ("encoder",),
                format_cells(vocabularies, SECTION_COLUMNS),
                PAPER,
                SECTION,
            ),
            *([build_weighting_table(weighted)] if weighted else []),
        ],
        notes=[
            f"Wr: centred, less the top {removed}(d / 100) principal components (analysis.removed).",
            "Eigenvectors are turned towards the sum of the rows; of centred rows, towards their largest entry.",
            *describe_norm_correlation(vocabularies),
            *([explain_weighting(counted.text_count, counted.name)] if counted else []),
        ],
        differs=collect_scale_notes(subjects, "encoder"),
        independent_figures=("figure2",),
    )


def measure_vocabulary(encoder: str, matrix: Tensor, removed: str) -> VocabularyMeasures:
    """Measure an embedding matrix, [V, d] float64, raw, centred and without top components (Eqs. 7 to 11)."""
    dim = matrix.shape[1]
    centred, count = center(matrix), ROUNDINGS[removed](dim / 100)
    norms = row_norms(matrix)
    accumulator = IsotropyAccumulator(dim)
    for rows in matrix.split(PIECE_ROWS):
        accumulator.update(rows)
    top, singular, projected = project_on_top_two(matrix)
    _, centred_singular, centred_projected = project_on_top_two(centred)
    mean_norm = torch.linalg.vector_norm(accumulator.mean).item()
    measures = {
        "rows": len(matrix),
        "dim": dim,
        "removed": count,
        "i1_raw": partition_isotropy(matrix)[0],
        "i1_centred": partition_isotropy(centred)[0],
        "i1_removed": partition_isotropy(all_but_the_top(matrix, count))[0],
        "average_norm": norms.mean().item(),
        "mean_norm": mean_norm,
        **accumulator.compute(),
        "cosine_of_mean_and_top": (top @ accumulator.mean).abs().item() / mean_norm if mean_norm else math.nan,
    }
    return VocabularyMeasures(
        encoder,
        measures,
        {"raw": singular.numpy(), "centred": centred_singular.numpy()},
        {"raw": projected.numpy(), "centred": centred_projected.numpy()},
        {"raw": norms.numpy(), "centred": row_norms(centred).numpy()},
    )


def project_on_top_two(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Decompose a matrix [V, d] into singular values and project its rows on the first two right singular vectors.

    The signs of the vectors are chosen so that they point towards the sum of the rows, as for I(W).

    Returns:
        The first vector [d], the singular values, descending, [min(V, d)], and the projected rows [V, 2].
    """
    second = gram(matrix)
    values, vectors = torch.linalg.eigh(second)  # ascending
    two = orient_eigenvectors(vectors[:, -2:].flip(1), second, row_mean(matrix) * len(matrix))  # (d, 2)
    singular = values.clamp(min=0).sqrt().flip(0)[: min(matrix.shape)]
    return two[:, 0], singular, matrix @ two


def format_cells(
    vocabularies: list[VocabularyMeasures], columns: Mapping[str, tuple[str, int]]
) -> dict[RowLabel, dict[str, str]]:
    """Format our cells of a table with the paper's decimals: encoder -> column -> text.

    Args:
        vocabularies: the measures of each encoder.
        columns: column -> measure and decimals.
    """
    return {
        (vocabulary.encoder,): {
            name: f"{vocabulary.measures[key]:.{decimals}f}" for name, (key, decimals) in columns.items()
        }
        for vocabulary in vocabularies
    }


def describe_norm_correlation(vocabularies: list[VocabularyMeasures]) -> list[str]:
    """Say how average norm and isotropy correlate over the encoders (Appendix C), here and in the paper's Table 1.

    Returns one note; none for fewer than three encoders.
    """
    if len(vocabularies) < 3:
        return []
    ours = stats.pearsonr(*([one.measures[key] for one in vocabularies] for key in ("average_norm", "i1_raw")))
    rows = [cells for methods in published.load_tables(PAPER)[TABLE].cells.values() for cells in methods.values()]
    theirs = stats.pearsonr(*([row[name][0] for row in rows] for name in ("avg norm", "I(W)")))
    return [
        f"Correlation of average norm and I(W): {ours.statistic:.2f} over these {len(vocabularies)} encoders, "
        f"{theirs.statistic:.2f} over the paper's {len(rows)} printed ones."
    ]


def build_singular_value_rows(vocabularies: list[VocabularyMeasures]) -> list[dict[str, Any]]:
    """Build a tidy row for each singular value, raw and centred: the right-hand panels of Figure 1."""
    return [
        {"encoder": vocabulary.encoder, "vectors": vectors, "index": index, "singular_value": value}
        for vocabulary in vocabularies
        for vectors, values in vocabulary.singular_values.items()
        for index, value in enumerate(values.tolist(), 1)
    ]


def estimate_norm_densities(vocabularies: list[VocabularyMeasures]) -> list[dict[str, Any]]:
    """Estimate the densities of the norms with Gaussian kernels (Scott's rule), as tidy rows for Figures 5 and 6."""
    rows: list[dict[str, Any]] = []
    for vocabulary in vocabularies:
        for vectors, norms in vocabulary.norms.items():
            places = np.linspace(norms.min(), norms.max(), DENSITY_POINTS)
            heights = stats.gaussian_kde(norms)(places)
            name = {"encoder": vocabulary.encoder, "vectors": vectors}
            pairs = zip(places.tolist(), heights.tolist(), strict=True)
            rows += [{**name, "norm": norm, "density": density} for norm, density in pairs]
    return rows


def sample_toy_spheres(points: int, shifts: list[float], seed: int) -> dict[float, np.ndarray]:
    """Draw points evenly from unit spheres whose centres are shifted from the origin along (1, 1, 1).

    Returns:
        Shift -> points, [n, 3].
    """
    generator = np.random.default_rng(seed)
    spheres = {}
    for shift in shifts:
        sphere = generator.normal(size=(points, 3))
        sphere /= np.linalg.norm(sphere, axis=1, keepdims=True)
        spheres[shift] = sphere + shift / math.sqrt(3)
    return spheres


def build_toy_rows(spheres: Mapping[float, np.ndarray]) -> list[dict[str, Any]]:
    """Build a tidy row for each singular value of each sphere's points, which are not centred."""
    return [
        {"shift": shift, "index": index, "singular_value": value}
        for shift, sphere in spheres.items()
        for index, value in enumerate(np.linalg.svd(sphere, compute_uv=False).tolist(), 1)
    ]
