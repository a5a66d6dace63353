"""Too Much in Common (Bis et al. 2021), Table 1 and Figures 1, 2, 5, 6: a vocabulary before and after centring."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from isobench.analyses import common_isotropy_figures
from isobench.analyses.findings import Findings, RowLabel, build_comparison_table
from isobench.analyses.setting_checks import ROUNDINGS, check_integer, check_keys, check_no_calibration, check_numbers
from isobench.analyses.subject import Subject, collect_scale_notes, iterate_subjects
from isobench.analyses.vocabulary import VocabularyMeasures
from isobench.calibration import all_but_the_top, center
from isobench.common.errors import UserError, suggest_nearest
from isobench.common.linalg import PIECE_ROWS, gram, row_mean, row_norms, to_float64
from isobench.metrics import IsotropyAccumulator, partition_isotropy
from isobench.metrics.partition import orient_eigenvectors
from isobench.papers import published

PAPER, TABLE = "too_much_in_common", "table1"
# Of Table 1: printed name -> measure and its decimals; then what the paper does not print.
TABLE1_COLUMNS = {"I(W)": ("i1_raw", 2), "I(Wc)": ("i1_centred", 2), "I(Wr)": ("i1_removed", 3)}
TABLE1_COLUMNS |= {"avg norm": ("average_norm", 2), "mean norm": ("mean_norm", 2), "ratio": ("mean_ratio", 2)}
TABLE1_COLUMNS |= {"EV1": ("ev1", 3), "avg cos": ("average_cosine", 2), "IsoScore": ("isoscore", 3)}
DENSITY_POINTS = 300


def analyse(subjects: list[Subject], removed: str, toy: Mapping[str, Any]) -> Findings:
    """Isotropy of the input embeddings: raw, centred, and without their top principal components.

    Args:
        subjects: encoders.
        removed: ``ceil`` or ``floor`` of d / 100 principal components are taken away for I(Wr).
        toy: Figure 2's ``points`` a sphere, and the spheres' ``shifts`` from the origin.

    Raises:
        UserError: a setting that can't be, a calibration.
    """
    if removed not in ROUNDINGS:
        raise UserError(f"analysis.removed={removed} is not known: {suggest_nearest(str(removed), ROUNDINGS)}")
    check_keys("toy", toy, ("points", "shifts"))
    check_integer("toy.points", toy["points"], 1)
    check_numbers("toy.shifts", toy["shifts"])
    check_no_calibration(subjects)
    found = []
    for subject in iterate_subjects(subjects, "vocabularies"):
        matrix = to_float64(subject.vocabulary())
        subject.release()  # the rest of the encoder is not needed, and large
        found.append(measure_vocabulary(subject.encoder, matrix, removed))
    spheres = sample_toy_spheres(toy["points"], toy["shifts"], subjects[0].cfg.seed)
    densities = estimate_norm_densities(found)
    return Findings(
        numbers={
            "isotropy": [{"encoder": one.encoder, **one.measures} for one in found],
            "singular_values": build_singular_value_rows(found),
            "norm_density": densities,
            "toy_singular_values": build_toy_rows(spheres),
        },
        figures={
            "figure1": common_isotropy_figures.draw_figure1(found),
            "figure2": common_isotropy_figures.draw_figure2(spheres, build_toy_rows(spheres)),
            "figure5": common_isotropy_figures.draw_figure5(densities),
            "figure6": common_isotropy_figures.draw_figure6(densities),
        },
        tables=[
            build_comparison_table(
                "Too Much in Common, Table 1", ("encoder",), format_table1_cells(found), PAPER, TABLE
            )
        ],
        notes=[
            f"Wr: centred, less the top {removed}(d / 100) principal components (analysis.removed).",
            "Eigenvectors are turned towards the sum of the rows; of centred rows, towards their largest entry.",
            *describe_norm_correlation(found),
        ],
        differs=collect_scale_notes(subjects, "encoder"),
    )


def measure_vocabulary(encoder: str, matrix: Tensor, removed: str) -> VocabularyMeasures:
    """Measure an embedding matrix, [V, d] float64; Eqs. 7 to 11."""
    dim = matrix.shape[1]
    centred, count = center(matrix), ROUNDINGS[removed](dim / 100)
    norms = row_norms(matrix)
    seen = IsotropyAccumulator(dim)
    for rows in matrix.split(PIECE_ROWS):
        seen.update(rows)
    top, singular, projected = project_on_top_two(matrix)
    _, centred_singular, centred_projected = project_on_top_two(centred)
    mean_norm = torch.linalg.vector_norm(seen.mean).item()
    measures = {
        "rows": len(matrix),
        "dim": dim,
        "removed": count,
        "i1_raw": partition_isotropy(matrix)[0],
        "i1_centred": partition_isotropy(centred)[0],
        "i1_removed": partition_isotropy(all_but_the_top(matrix, count))[0],
        "average_norm": norms.mean().item(),
        "mean_norm": mean_norm,
        **seen.compute(),
        "cosine_of_mean_and_top": (top @ seen.mean).abs().item() / mean_norm if mean_norm else math.nan,
    }
    return VocabularyMeasures(
        encoder,
        measures,
        {"raw": singular.numpy(), "centred": centred_singular.numpy()},
        {"raw": projected.numpy(), "centred": centred_projected.numpy()},
        {"raw": norms.numpy(), "centred": row_norms(centred).numpy()},
    )


def project_on_top_two(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The first right singular vector [d], the singular values [min(V, d)], the rows on the first two vectors [V, 2].

    Vectors are turned towards the sum of the rows, as in I(W).
    """
    second = gram(matrix)
    values, vectors = torch.linalg.eigh(second)  # ascending
    two = orient_eigenvectors(vectors[:, -2:].flip(1), second, row_mean(matrix) * len(matrix))  # (d, 2)
    singular = values.clamp(min=0).sqrt().flip(0)[: min(matrix.shape)]
    return two[:, 0], singular, matrix @ two


def format_table1_cells(found: list[VocabularyMeasures]) -> dict[RowLabel, dict[str, str]]:
    """Encoder -> printed column -> our number, with as many decimals as the paper's."""
    return {
        (one.encoder,): {
            name: f"{one.measures[key]:.{decimals}f}" for name, (key, decimals) in TABLE1_COLUMNS.items()
        }
        for one in found
    }


def describe_norm_correlation(found: list[VocabularyMeasures]) -> list[str]:
    """The correlation of norm and isotropy (Appendix C), where there are encoders enough, beside Table 1's own."""
    if len(found) < 3:
        return []
    ours = stats.pearsonr(*([one.measures[key] for one in found] for key in ("average_norm", "i1_raw")))
    rows = [cells for methods in published.load_tables(PAPER)[TABLE].cells.values() for cells in methods.values()]
    theirs = stats.pearsonr(*([row[name][0] for row in rows] for name in ("avg norm", "I(W)")))
    return [
        f"Correlation of average norm and I(W): {ours.statistic:.2f} over these {len(found)} encoders, "
        f"{theirs.statistic:.2f} over the paper's {len(rows)} printed ones."
    ]


def build_singular_value_rows(found: list[VocabularyMeasures]) -> list[dict[str, Any]]:
    """Tidy rows of Figure 1's right-hand side."""
    return [
        {"encoder": one.encoder, "vectors": vectors, "index": index, "singular_value": value}
        for one in found
        for vectors, values in one.singular_values.items()
        for index, value in enumerate(values.tolist(), 1)
    ]


def estimate_norm_densities(found: list[VocabularyMeasures]) -> list[dict[str, Any]]:
    """Tidy rows of Figures 5 and 6: Gaussian kernels of the width of Scott's rule."""
    rows: list[dict[str, Any]] = []
    for one in found:
        for vectors, norms in one.norms.items():
            places = np.linspace(norms.min(), norms.max(), DENSITY_POINTS)
            heights = stats.gaussian_kde(norms)(places)
            name = {"encoder": one.encoder, "vectors": vectors}
            pairs = zip(places.tolist(), heights.tolist(), strict=True)
            rows += [{**name, "norm": norm, "density": density} for norm, density in pairs]
    return rows


def sample_toy_spheres(points: int, shifts: list[float], seed: int) -> dict[float, np.ndarray]:
    """Shift -> points [n, 3] drawn evenly from the unit sphere, moved that far from the origin along (1, 1, 1)."""
    generator = np.random.default_rng(seed)
    spheres = {}
    for shift in shifts:
        sphere = generator.normal(size=(points, 3))
        sphere /= np.linalg.norm(sphere, axis=1, keepdims=True)
        spheres[shift] = sphere + shift / math.sqrt(3)
    return spheres


def build_toy_rows(spheres: Mapping[float, np.ndarray]) -> list[dict[str, Any]]:
    """Tidy rows: the spheres' singular values, without centring."""
    return [
        {"shift": shift, "index": index, "singular_value": value}
        for shift, sphere in spheres.items()
        for index, value in enumerate(np.linalg.svd(sphere, compute_uv=False).tolist(), 1)
    ]
