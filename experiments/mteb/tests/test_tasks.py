"""Tasks as files: shipped ones and one's own; columns, splits that are read together, sets with one split."""

import numpy as np
import pytest
from helpers import check_done, check_refused, make_config, read_analysis_rows, write_parquet

from isobench_papers.mteb.tasks import hold_out, read_classes, read_pairs, read_task
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


@pytest.mark.slow
def test_own_tasks_stand_in_the_ledger_and_absent_ones_are_named(cli, cache, tmp_path):
    own = write_task(
        tmp_path / "own", "kind: classification", "main_score: f1_weighted", "held_out: 0.25", "per_class: 2",
        "published: {minilm: {test: {accuracy: 2.0}}}",
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
    assert (ours["accuracy"]["published"], ours["accuracy"]["hit"]) == (2.0, False)
    assert ours["accuracy"]["difference"] == pytest.approx(ours["accuracy"]["ours"] - 2)
    check_refused(cli(*settings, f"data.root={tmp_path}", f"analysis.tasks=[{absent}]"), "Nowhere")
