"""Hold the result of a diagnosis: what is the matter with a set of embeddings, and what would change it."""

from dataclasses import asdict, dataclass, field
from typing import Any

from isobench.common.files import replace_non_finite
from isobench.metrics.cosines import Level


@dataclass(frozen=True)
class Finding:
    """Hold one measure of the vectors: its value, what is normal for well-known encoders, and one plain sentence.

    ``normal`` is (lowest, highest) over the reference encoders, None where there is no reference.
    """

    measure: str
    value: float
    normal: tuple[float, float] | None
    sentence: str


@dataclass(frozen=True)
class Effect:
    """Hold what one post-hoc method does, fitted on one half of the vectors and measured on the other half.

    ``score`` is that of the probe (accuracy) or of the scored pairs (Spearman's correlation), as a fraction; NaN
    without labels or scores. ``change``, ``low``, ``high``: the change from no method, with its 95% interval.
    ``components``: how many coordinates the vectors have after it.
    """

    method: str
    isoscore: float
    ev1: float
    average_cosine: float
    score: float
    change: float
    low: float
    high: float
    components: int


@dataclass(frozen=True)
class Retrieval:
    """Hold the search with one method, fitted on the corpus alone: means over the queries, as fractions.

    ``change``, ``low``, ``high``: of nDCG@10 from no method, with its 95% interval; ``p``: after Holm's correction.
    ``hubness``: skewness of how often documents are among the 10 nearest of another; ``orphans``: the share never.
    """

    method: str
    ndcg_10: float
    recall_10: float
    recall_100: float
    mrr_10: float
    change: float
    low: float
    high: float
    p: float
    hubness: float
    orphans: float


@dataclass(frozen=True)
class Diagnosis:
    """Hold a diagnosis of vectors [N, d]. A notebook shows it as tables; ``to_json`` gives plain values.

    Attributes:
        source: what was diagnosed, such as a file's name.
        rows, dim: N and d.
        findings: the measures, in the order in which they are shown.
        variances: along the principal components, descending, as shares of their sum, [d].
        norms: lengths of a sample of the vectors, ascending.
        coordinates: share of the variance in each coordinate, [d].
        effects: what post-hoc methods do, that of no method first.
        retrieval: what they change of a search, where there are queries and relevance.
        levels: what a cosine means with each method.
        score: what ``Effect.score`` is: "accuracy", "spearman", or None.
        notes: what a reader must know, such as a matrix without full rank.
    """

    source: str
    rows: int
    dim: int
    findings: list[Finding]
    variances: list[float] = field(repr=False)
    norms: list[float] = field(repr=False)
    coordinates: list[float] = field(repr=False)
    effects: list[Effect] = field(default_factory=list)
    score: str | None = None
    notes: list[str] = field(default_factory=list)
    retrieval: list[Retrieval] = field(default_factory=list)
    levels: list[Level] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for strict JSON; a number that is not finite becomes None."""
        plain: dict[str, Any] = replace_non_finite(asdict(self))
        return plain

    def _repr_html_(self) -> str:
        from isobench.frozen.show import render_tables

        return render_tables(self)
