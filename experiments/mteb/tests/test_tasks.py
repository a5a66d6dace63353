"""Tasks as files: shipped ones and one's own; columns, splits that are read together, sets with one split."""

import numpy as np
import pytest
from helpers import check_done, check_refused, make_config, read_analysis_rows, write_parquet

from isobench_papers.mteb import retrieval
from isobench_papers.mteb.tasks import find_tasks, hold_out, read_classes, read_pairs, read_task
from isobench_papers.probe.sets import LabelledTexts

LABELS = ["yes", "no", "no"] * 8
TEXTS = [f"text {number} says {label}" for number, label in enumerate(LABELS)]


def write_task(folder, *lines):
    folder.mkdir(exist_ok=True)
    (folder / "mine.yaml").write_text("\n".join(["name: Mine", f"folder: {folder}", *lines]))
    return folder / "mine.yaml"


def test_columns_go_by_other_names_and_files_are_read_together(tmp_path):
    data = make_config().data
    file = write_task(
        tmp_path, "kind: classification", "main_score: f1", "columns: {text: body, label: stars}",
        "splits: {test: [b, a]}",
    )  # fmt: skip
    for split in ("train", "a", "b"):
        write_parquet(tmp_path / f"{split}.parquet", {"body": [f"{split} {text}" for text in TEXTS], "stars": LABELS})
    training, evaluated = read_classes(read_task(file), data, "test")
    assert (training.texts[0], training.labels.tolist()) == ("train text 0 says yes", LABELS)
    assert [evaluated.texts[place] for place in (0, 24)] == ["b text 0 says yes", "a text 0 says yes"]

    file = write_task(tmp_path, "kind: pairs", "main_score: cosine_spearman", "splits: {dev: [p, q]}")
    for split, score in (("p", 1.0), ("q", 2.0)):
        write_parquet(tmp_path / f"{split}.parquet", {"sentence1": [split], "sentence2": ["other"], "score": [score]})
    pairs = read_pairs(read_task(file), data, "dev")
    assert (pairs.first, pairs.second, pairs.scores.tolist()) == (["p", "q"], ["other"] * 2, [1.0, 2.0])


def test_of_a_single_split_a_share_of_each_class_is_evaluated_and_never_trained_on():
    whole = LabelledTexts(TEXTS, np.array(LABELS))
    rest, held = hold_out(whole, 0.25)
    assert sorted([*rest.texts, *held.texts]) == sorted(TEXTS)
    assert sorted(held.labels) == ["no"] * 4 + ["yes"] * 2
    assert rest.texts == [text for text in TEXTS if text in rest.texts]  # in the file's order, on which draws depend
    assert hold_out(whole, 0.25)[1].texts == held.texts


@pytest.mark.parametrize(
    "lines",
    [["kind: clustering", "main_score: v"], ["kind: pairs"], ["kind: pairs", "main_score: a", "per_clas: 3"],
     ["kind: pairs", "main_score: a", "hub: {path: a/b}"], ["kind: pairs", "main_score: a", "held_out: 1.5"]],
    ids=["kind", "no main score", "misspelt", "two sources", "share"],
)  # fmt: skip
def test_a_task_that_would_be_scored_otherwise_than_meant_is_refused(tmp_path, lines):
    with pytest.raises(Exception, match="mine.yaml"):
        read_task(write_task(tmp_path, *lines))


def test_a_name_means_all_subsets_of_a_task():
    assert {task.subset for task in find_tasks(["AmazonCounterfactualClassification"])} == {"de", "en", "en-ext"}


def test_scores_of_a_search_are_those_of_trec_eval(tmp_path):
    """With equal vectors (ties), negative and missing grades, a query among the documents, and one without any."""
    trec = pytest.importorskip("pytrec_eval")
    rng = np.random.default_rng(0)
    documents = {f"d{place}": f"d{place}" for place in range(60)} | {"q1": "q1"}
    judged = [(f"q{q}", f"d{d}", int(grade)) for q in range(5) for d, grade in enumerate(rng.integers(-1, 3, 40))]
    judged = [(query, document, 0 if query == "q4" else grade) for query, document, grade in judged]
    columns = dict(zip(("query", "document", "relevance"), zip(*judged, strict=True), strict=True))
    write_parquet(tmp_path / "corpus.parquet", {"id": list(documents), "text": list(documents)})
    queries = [f"q{q}" for q in range(7)]
    write_parquet(tmp_path / "queries.parquet", {"id": queries, "text": queries})
    write_parquet(tmp_path / "test.parquet", {name: list(values) for name, values in columns.items()})
    vectors = {name: rng.normal(size=3).astype(np.float32) for name in [*documents, *queries]}
    vectors |= {f"d{place}": vectors["d3"] for place in range(4, 12)}
    unit = {name: vector / np.linalg.norm(vector) for name, vector in vectors.items()}
    task = read_task(write_task(tmp_path, "kind: retrieval", "main_score: ndcg_at_10", "ignore_identical_ids: true"))
    ours = retrieval.search(task, make_config().data, "test", lambda _, texts: np.stack([unit[t] for t in texts]))
    qrels: dict = {}
    for query, document, grade in judged:
        qrels.setdefault(query, {})[document] = grade
    run = {
        query: {key: float(unit[query].astype(float) @ unit[key].astype(float)) for key in documents if key != query}
        for query in qrels
    }
    wanted = {f"{name}.{','.join(map(str, retrieval.CUTS))}" for name in ("ndcg_cut", "map_cut", "recall", "P")}
    theirs = trec.RelevanceEvaluator(qrels, wanted).evaluate(run)
    for name, other in (("ndcg", "ndcg_cut"), ("map", "map_cut"), ("recall", "recall"), ("precision", "P")):
        for k in retrieval.CUTS:
            mean = np.mean([scores[f"{other}_{k}"] for scores in theirs.values()])
            assert ours[f"{name}_at_{k}"] == pytest.approx(mean, abs=1e-9)
    assert next(iter(ours)) == "ndcg_at_10"


@pytest.mark.slow
def test_own_tasks_stand_in_the_ledger_and_absent_ones_are_named(cli, cache, tmp_path):
    own = write_task(
        tmp_path / "own", "kind: classification", "main_score: f1_weighted", "held_out: 0.25", "per_class: 2",
        "published: {minilm: {test: {accuracy: -1.0}}}",
    )  # fmt: skip
    write_parquet(own.parent / "train.parquet", {"text": TEXTS, "label": LABELS})
    absent = tmp_path / "absent.yaml"
    absent.write_text("{name: Nowhere, kind: pairs, folder: nowhere, main_score: cosine_spearman}")
    settings = ["+experiment=mteb", f"output_dir={tmp_path / 'outputs'}", "tracking=none", f"data.cache={cache}"]
    out, _ = check_done(cli(*settings, f"data.root={tmp_path}", f"analysis.tasks=[{own},{absent}]"))
    assert "Nowhere" in out
    assert "25% of train held out" in " ".join(out.split())
    rows = read_analysis_rows(tmp_path / "outputs", "mteb")["ledger"]
    ours = {row["metric"]: row for row in rows if row["recipe"] == "MTEB's"}
    assert ours.keys() == {"f1_weighted", "accuracy", "f1", "ap"}
    assert (ours["f1"]["published"], ours["f1"]["hit"]) == (None, None)
    assert (ours["accuracy"]["published"], ours["accuracy"]["hit"]) == (-1.0, False)
    assert ours["accuracy"]["difference"] == pytest.approx(ours["accuracy"]["ours"] + 1)
    check_refused(cli(*settings, f"data.root={tmp_path}", f"analysis.tasks=[{absent}]"), "Nowhere")
