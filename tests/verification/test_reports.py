"""isobench verify on reports: those of another version, of removed predictions, of runs that have not ended."""

import shutil
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from helpers import make_config
from made_up_runs import write_manifest
from tampering import REPORT_WAYS, claim_another_version, exchange, find_report, list_failures, tamper

from isobench.verification.ledger import DIFFERS, HOLDS, UNCHECKED
from isobench.verification.predictions import read_predictions
from isobench.verification.tables import format_csv
from isobench.verification.verify import Options, verify


def test_the_report_of_another_version_is_compared_in_its_tables_only(folder):
    claim_another_version(folder)
    report = find_report(folder)
    text = (report / "report.md").read_text()
    (report / "report.md").write_text(text.replace("encoder", "Encoder").replace("too few", "not enough"))
    rows = (report / "runs.csv").read_text()
    (report / "runs.csv").write_text(rows.replace('"', "", 2))
    if folder.name == "bundle":
        write_manifest(folder)
    ledger = verify(folder, Options())
    assert not ledger.has_failed
    assert {entry.subject.rpartition("/")[2] for entry in ledger.list_entries(UNCHECKED)} == {"report.md"}
    (difference,) = [entry for entry in ledger.list_entries(DIFFERS) if entry.check == "tables"]
    assert difference.text.endswith("its cells are the same, written otherwise")
    (report / "report.md").write_text(text + "\n99.87\n")
    assert any("99.87" in failure and "another version made it" in failure for failure in list_failures(folder))


@pytest.mark.parametrize("name", REPORT_WAYS)
def test_a_report_that_claims_another_version_is_not_excused(places, tmp_path, name):
    folder = Path(shutil.copytree(places / "outputs", tmp_path / "outputs"))
    claim_another_version(folder)
    REPORT_WAYS[name](find_report(folder))
    assert list_failures(folder)


@pytest.mark.parametrize("seed", range(6))
def test_seeded_tamperings_of_a_report_that_claims_another_version_are_named(places, tmp_path, seed):
    folder = Path(shutil.copytree(places / "outputs", tmp_path / "outputs"))
    claim_another_version(folder)
    tamper(("change_table", "change_rows")[seed % 2], seed, folder, repair=True)
    assert list_failures(folder)


def test_removed_predictions_do_not_excuse_the_score_tables(folder):
    for file in folder.glob("runs/*/predictions.parquet"):
        file.unlink()
    report = find_report(folder)
    exchange(report / "report.md", "67.50", "60.00")
    if folder.name == "bundle":
        write_manifest(folder)
    (failure,) = list_failures(folder)
    assert "report.md tables: it lacks the table" in failure


def test_a_queued_row_without_a_folder_excuses_no_other_row(places, tmp_path):
    folder = Path(shutil.copytree(places / "outputs", tmp_path / "outputs"))
    report = find_report(folder)
    table = pyarrow.parquet.read_table(report / "runs.parquet")
    rows = table.to_pylist()
    none = dict.fromkeys(table.column_names)
    queued = none | {name: rows[0][name] for name in ("task", "encoder", "method", "seed")}
    queued |= {"key": "0" * 16, "status": "queued"}

    def write(rows):
        changed = pyarrow.Table.from_pylist(rows, schema=table.schema)
        pyarrow.parquet.write_table(changed, report / "runs.parquet")
        (report / "runs.csv").write_bytes(format_csv(changed))

    write([*rows, queued])
    ledger = verify(folder, Options())
    assert not ledger.has_failed
    assert ledger.count()["tables"] == {HOLDS: 4, UNCHECKED: 1}
    write([*rows, queued | {"score": 99.0}])
    (failure,) = list_failures(folder)
    assert failure.endswith("it has a score of the run 0000000000000000, which had not ended")
    write([rows[0] | {"score": 99.0}, *rows[1:], queued])
    assert any("score in row 1" in failure for failure in list_failures(folder))


def test_a_report_that_runs_have_outdated_is_one_failure(places, tmp_path):
    folder = Path(shutil.copytree(places / "outputs", tmp_path / "outputs"))
    file = find_report(folder) / "runs.parquet"
    table = pyarrow.parquet.read_table(file)
    rows = table.to_pylist()
    early = [row | {"status": "running"} for row in rows[:2]]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([*early, *rows[2:]], schema=table.schema), file)
    outdated = [failure for failure in list_failures(folder) if "made before" in failure]
    assert len(outdated) == 1
    assert f"it was made before the run {rows[0]['key']} and 1 other ended" in outdated[0]


def write_predictions_as(table):
    """Write a table as somebody may who wants to fill the reader's memory: a text once, in very many rows."""
    buffer = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(table, buffer, compression="zstd", store_schema=False)
    return buffer.getvalue().to_pybytes()


def test_a_small_file_can_not_fill_the_memory():
    task = make_config("task=sst2").task
    rows = 600
    columns = {
        "split": ["validation"] * rows, "index": list(range(rows)), "label": [0.0] * rows,
        "prediction": [0.0] * rows, "logits": [[1.0, 0.0]] * rows,
    }  # fmt: skip
    assert read_predictions(write_predictions_as(pyarrow.table(columns)), task, {}).keys() == {"validation"}
    long = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * rows), pyarrow.array(["x" * 2**19]))
    for name, values, message in (
        ("split", long, "its texts have more than 256 MiB"),
        ("split", pyarrow.array(["x"] * rows, pyarrow.binary()), "values of split are binary"),
        ("label", pyarrow.array([0] * rows), "values of label are int64"),
    ):
        content = write_predictions_as(pyarrow.table(columns | {name: values}))
        assert len(content) < 2**19
        with pytest.raises(ValueError, match=message):
            read_predictions(content, task, {})
