"""Does calibration help a search? nDCG@10 of frozen vectors with each method, fitted on the documents alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from matplotlib.figure import Figure

from isobench.analyses.rows import TidyRow, group_rows, list_distinct
from isobench.analyses.shown import Rows, Shown, format_number, make_table
from isobench.common.errors import UserError
from isobench.common.plots import PALETTE, make_panel_grid
from isobench.config.bounds import NOT_EMPTY, one_of
from isobench.data.tables import read_fields
from isobench.data.weights import format_encoder_name
from isobench.statistics.seeds import ALPHA, holm

if TYPE_CHECKING:
    from isobench.analyses.subject import Subject
    from isobench.frozen.encode import FrozenEncoder
    from isobench.frozen.retrieval import Search

SetName = Annotated[str, one_of("dbpedia", "qqp")]
PLAIN, CENTRE, SOFT, FULL = "none", "center", "soft ZCA", "ZCA"
RESAMPLES = 10_000
UNTRAINED, TRAINED = ("distilbert-quire", "glove"), ("minilm", "mpnet")  # for similarity
SMALL = 0.01  # of nDCG: one point
STATEMENTS = (
    "soft ZCA raises nDCG@10 of encoders not trained for similarity",
    "all-but-the-top raises nDCG@10 of encoders not trained for similarity",
    "full ZCA lowers nDCG@10 of encoders trained for similarity",
    "centring and one component change nDCG@10 of encoders trained for similarity by less than a point",
)


@dataclass
class SearchSet:
    """Hold documents and queries, their ids, and the judgements: query, document, grade."""

    documents: dict[str, str]
    queries: dict[str, str]
    judgements: list[tuple[str, str, int]]


def compute(subjects: list["Subject"], sets: Annotated[list[SetName], NOT_EMPTY], pairs: int = 5000) -> Rows:
    """Search each set with each encoder and method: a row a method, and one a query.

    Args:
        subjects: encoders x methods, among them none.
        sets: names of the sets.
        pairs: of Quora's question pairs, the first ones.
    """
    from isobench.common.progress import track_progress
    from isobench.frozen.encode import FrozenEncoder
    from isobench.frozen.posthoc import check_post_hoc
    from isobench.frozen.retrieval import make_search

    for subject in subjects:
        check_post_hoc(subject.cfg.calibration)
    root = subjects[0].cfg.data.root
    read = {name: read_set(root, name, pairs) for name in sets}
    groups: dict[str, list[Subject]] = {}
    for subject in subjects:
        groups.setdefault(format_encoder_name(subject.cfg.encoder), []).append(subject)
    effects: list[TidyRow] = []
    queries: list[TidyRow] = []
    steps = [(model, name) for model in groups for name in read]
    for model, name in track_progress(steps, "searches"):
        own, found = groups[model], read[name]
        encoder = FrozenEncoder(own[0].cfg, [None])
        corpus = embed(encoder, f"{name}-documents", found.documents)
        asked = embed(encoder, f"{name}-queries", found.queries)
        search, _ = make_search(asked, found.judgements, list(found.queries), list(found.documents), name)
        rows, scored = measure_methods(own, corpus, search)
        effects += [{"encoder": model, "set": name, **row} for row in rows]
        queries += [{"encoder": model, "set": name, **row} for row in scored]
    corrected = holm([row["p"] for row in effects])
    return {"effects": [row | {"p_holm": p} for row, p in zip(effects, corrected, strict=True)], "queries": queries}


def read_set(root: str | None, name: str, pairs: int) -> SearchSet:
    """Read a set below ``data.root``."""
    folder = Path(str(root)).expanduser()
    needed = folder / ("retrieval/dbpedia_sample" if name == "dbpedia" else "glue/qqp")
    if root is None or not needed.is_dir():
        raise UserError(f"set data.root=FOLDER: the set {name} is read from FOLDER/{needed.relative_to(folder)}")
    if name == "dbpedia":
        ids, titles, texts = read_fields(needed / "corpus.parquet", ("id", "title", "text"))
        documents = {key: f"{title} {text}".strip() for key, title, text in zip(ids, titles, texts, strict=True)}
        queries = dict(zip(*read_fields(needed / "queries.parquet", ("id", "text")), strict=True))
        judged = read_fields(needed / "qrels.parquet", ("query", "document", "relevance"))
        return SearchSet(documents, queries, list(zip(*judged, strict=True)))
    columns = read_fields(needed / "validation.parquet", ("question1", "question2", "label"))
    return make_question_search(*columns, pairs)


def make_question_search(first: Sequence[str], second: Sequence[str], labels: Sequence[int], pairs: int) -> SearchSet:
    """Make a search of question pairs: documents are second questions, queries first ones that have a duplicate."""
    rows = list(zip(first, second, labels, strict=True))[:pairs]
    documents = {text: f"d{place}" for place, text in enumerate(dict.fromkeys(row[1] for row in rows))}
    asked = dict.fromkeys(text for text, _, label in rows if label == 1 and text not in documents)
    queries = {text: f"q{place}" for place, text in enumerate(asked)}
    judged = {(queries[text], documents[other]): 1 for text, other, label in rows if label == 1 and text in queries}
    return SearchSet(
        {key: text for text, key in documents.items()},
        {key: text for text, key in queries.items()},
        [(query, document, grade) for (query, document), grade in judged.items()],
    )


def embed(encoder: "FrozenEncoder", name: str, texts: dict[str, str]) -> np.ndarray:
    """Return the vectors of texts, [N, d] float64."""
    return encoder.encode(name, list(texts.values()))[None].vectors.double().numpy()


def measure_methods(
    subjects: Sequence["Subject"], corpus: np.ndarray, search: "Search"
) -> tuple[list[TidyRow], list[TidyRow]]:
    """Search a corpus [N, d] with each method: rows with means, changes from none and hubs, and a row a query."""
    import torch

    from isobench.common.linalg import divide_by_length
    from isobench.frozen.posthoc import fit_method
    from isobench.metrics.retrieval import measure_hubs

    vectors = torch.from_numpy(corpus)
    scores: dict[str, np.ndarray] = {}
    hubs: dict[str, tuple[float, float]] = {}
    for subject in subjects:
        transform = fit_method(subject.cfg.calibration, vectors)
        unit = divide_by_length(transform(vectors)).float().numpy()
        scores[name_method(subject)], hubs[name_method(subject)] = search.score(transform, unit), measure_hubs(unit)
    if PLAIN not in scores:
        raise UserError("calibration=none is needed beside the methods: they are compared with it")
    rows = []
    for name, found in scores.items():
        change, low, high, p = compare(found[:, 0] - scores[PLAIN][:, 0])
        means = dict(zip(("ndcg_10", "recall_10", "recall_100", "mrr_10"), map(float, found.mean(0)), strict=True))
        tested = {"change": change, "low": low, "high": high, "p": p if name != PLAIN else float("nan")}
        counts = {"method": name, "queries": len(found), "documents": len(corpus)}
        rows.append({**counts, **means, **tested, "hubness": hubs[name][0], "never_found": hubs[name][1]})
    single = [
        {"method": name, "query": place, "ndcg_10": float(score)}
        for name, found in scores.items()
        for place, score in enumerate(found[:, 0])
    ]
    return rows, single


def name_method(subject: "Subject") -> str:
    """Name a method as the registration does."""
    settings = subject.cfg.calibration
    if settings["name"] == "whitening_zca":
        return SOFT if settings["shrinkage"] else FULL
    return f"all-but-the-top {settings['D']}" if settings["name"] == "all_but_the_top" else str(settings["name"])


def compare(changes: np.ndarray) -> tuple[float, float, float, float]:
    """Compare by a paired bootstrap over queries: the mean change [Q] with its 95% interval and two-sided p."""
    rng = np.random.default_rng(0)
    means = np.array([changes[rng.integers(len(changes), size=len(changes))].mean() for _ in range(RESAMPLES)])
    low, high = np.quantile(means, (0.025, 0.975))
    tail = min((means <= 0).sum(), (means >= 0).sum()) + 1
    return float(changes.mean()), float(low), float(high), min(1.0, 2 * tail / (RESAMPLES + 1))


def judge(effects: Sequence[TidyRow]) -> list[TidyRow]:
    """Judge the registered statements, a row a test."""
    rows: list[TidyRow] = []
    for (encoder, name), own in group_rows(effects, "encoder", "set").items():
        methods = {row["method"]: row for row in own}
        removing = [method for method in methods if method.startswith("all-but")]
        most = max(removing, key=lambda method: int(method.split()[-1]), default="")
        wanted = [(0, SOFT, 1), (1, most, 1)] * (encoder in UNTRAINED) + [(2, FULL, -1)] * (encoder in TRAINED)
        tests = [
            (place, methods[method], judge_direction(methods[method], sign))
            for place, method, sign in wanted
            if method in methods
        ]
        if encoder in TRAINED:
            small = [methods[method] for method in (CENTRE, "all-but-the-top 1") if method in methods]
            tests += [(3, row, judge_size(row)) for row in small]
        about = {"encoder": encoder, "set": name}
        rows += [{"statement": STATEMENTS[n], **about, "method": row["method"], "verdict": v} for n, row, v in tests]
    return rows


def judge_direction(row: TidyRow, sign: int) -> str:
    """Say whether a change has the stated sign, after Holm's correction."""
    if not row["p_holm"] < ALPHA:
        return "can't tell"
    return "supported" if row["change"] * sign > 0 else "refuted"


def judge_size(row: TidyRow) -> str:
    """Say whether a change is below a point, by its uncorrected interval."""
    if row["low"] > -SMALL and row["high"] < SMALL:
        return "supported"
    return "refuted" if row["low"] > SMALL or row["high"] < -SMALL else "can't tell"


def describe_differences(subjects: list["Subject"], rows: Rows) -> list[str]:
    """Say how many documents and queries were searched."""
    counts = {row["set"]: (row["documents"], row["queries"]) for row in rows["effects"]}
    return [f"{name}: {count[0]:,} documents, {count[1]:,} queries" for name, count in counts.items()]


def show(rows: Rows) -> Shown:
    """Show nDCG@10 x 100 with each method, its change from none, hubs, and the verdicts."""
    effects = rows["effects"]
    tables = []
    for (name,), own in group_rows(effects, "set").items():
        headings = ("nDCG@10", "change", "Holm's p", "Recall@100", "MRR@10", "hubness", "in nobody's ten")
        table = make_table(f"{name}, x 100", ("encoder", "method"), headings)
        for row in own:
            change, p = "", ""
            if row["method"] != PLAIN:
                change = f"{100 * row['change']:+.2f} [{100 * row['low']:+.2f}, {100 * row['high']:+.2f}]"
                p = format_number(row["p_holm"], ".3f")
            numbers = (f"{100 * row[key]:.2f}" for key in ("recall_100", "mrr_10"))
            hubs = (f"{row['hubness']:.2f}", f"{100 * row['never_found']:.1f}")
            table.add_row(row["encoder"], row["method"], f"{100 * row['ndcg_10']:.2f}", change, p, *numbers, *hubs)
        tables.append(table)
    verdicts = make_table("Registered statements", ("statement", "encoder", "set", "method"), ("verdict",))
    for row in judge(effects):
        verdicts.add_row(*(row[key] for key in ("statement", "encoder", "set", "method", "verdict")))
    notes = [
        "Changes are means over queries of nDCG@10 x 100; intervals are a bootstrap over queries, not corrected; "
        f"p is Holm's over {sum(row['method'] != PLAIN for row in effects)} comparisons."
    ]
    return Shown([*tables, verdicts], {"changes": draw_changes(effects)}, notes)


def draw_changes(effects: Sequence[TidyRow]) -> Figure:
    """Draw the change of nDCG@10 with each method: a panel a set, a colour an encoder."""
    sets, encoders = list_distinct(effects, "set"), list_distinct(effects, "encoder")
    found = list_distinct(effects, "method")
    methods = [
        name for name in (CENTRE, *sorted(set(found) - {PLAIN, CENTRE, SOFT, FULL}), SOFT, FULL) if name in found
    ]
    figure, axes = make_panel_grid(sets, 3.2, across=2)
    for ax, name in zip(axes, sets, strict=False):
        for place, encoder in enumerate(encoders):
            own = [
                row for row in effects if (row["set"], row["encoder"]) == (name, encoder) and row["method"] != PLAIN
            ]
            y = [methods.index(row["method"]) + 0.15 * (place - len(encoders) / 2) for row in own]
            changes = [100 * row["change"] for row in own]
            below, above = ([100 * abs(row[end] - row["change"]) for row in own] for end in ("low", "high"))
            ax.errorbar(changes, y, xerr=[below, above], fmt="o", markersize=4, color=PALETTE[place], label=encoder)
        ax.axvline(0, color="grey", linewidth=0.8)
        ax.set(xlabel="change of nDCG@10, points", yticks=range(len(methods)), yticklabels=methods)
        ax.invert_yaxis()
    axes[0].legend()
    return figure
