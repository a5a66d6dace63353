"""isobench verify computes the rows of analyses of trained runs again: changed rows fail, also with new checksums."""

import json
import shutil
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from bundle_tools import edit_rows, repair, write_signed_json
from helpers import ROOT
from tampering import list_failures

from isobench.common.files import sha256_file
from isobench.verification.folder import HOLDS, UNCHECKED
from isobench.verification.reproduction import Options
from isobench.verification.verify import find_differences, verify

RESULTS = ROOT / "experiments"


def change_rows(bundle: Path, name: str, change) -> None:
    """Change the rows of an analysis, and every checksum that tells of it."""
    file = bundle / "analysis" / f"{name}.parquet"
    edit_rows(file, change)
    change_about(bundle, lambda about: about["sha256"].update({file.name: sha256_file(file)}))


def change_about(bundle: Path, change) -> None:
    file = bundle / "analysis" / "about.json"
    about = json.loads(file.read_text())
    change(about)
    write_signed_json(file, about)
    repair(bundle)


@pytest.fixture
def drift(tmp_path) -> Path:
    return Path(shutil.copytree(RESULTS / "isobn/results/isobn_drift", tmp_path / "isobn_drift"))


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: [row | {"cosine": row["cosine"] * 0.999} for row in rows],
        lambda rows: rows[1:],
        lambda rows: [row | {"encoder": "bert"} for row in rows],
    ],
)
def test_changed_rows_of_an_analysis_of_runs_fail(drift, change):
    outcomes = verify(drift, Options())
    assert (outcomes.count()["analysis"], outcomes.has_failed) == ({HOLDS: 1}, False)
    change_rows(drift, "drift", change)
    (failure,) = list_failures(drift)
    assert failure.startswith("analysis/drift.parquet analysis: ")


@pytest.mark.parametrize(
    "change",
    [
        lambda about: about.update(ended=[]), lambda about: about["keys"].append("0" * 64),
        lambda about: about["analysis"].update(trains=False), lambda about: about.pop("keys"),
        lambda about: about["experiment"].update(name="isobn_ev"),
        lambda about: about["sha256"].update({"drift.parquet": "0" * 64}),
    ],
)  # fmt: skip
def test_what_an_analysis_says_of_itself_is_compared(drift, change):
    change_about(drift, change)
    assert list_failures(drift)


def test_a_table_that_nothing_computes_fails(drift):
    pyarrow.parquet.write_table(pyarrow.table({"p": [0.001]}), drift / "analysis" / "extra.parquet")
    repair(drift)
    assert list_failures(drift)


def test_an_analysis_is_computed_by_our_own_function(drift):
    """What a stored file names as its function is not imported."""
    change_about(drift, lambda about: about["analysis"].update(_target_="os.system"))
    assert verify(drift, Options()).count()["analysis"] == {HOLDS: 1}
    change_about(drift, lambda about: about["analysis"].update(command="true"))
    assert verify(drift, Options()).count()["analysis"] == {UNCHECKED: 1}


def test_rows_agree_within_the_tolerance():
    nan = float("nan")
    for column, other, count in (
        ([1.0, 1e-9, None], [1.0 + 1e-8, 0.0, nan], 1), ([1.0, nan], [1.0, nan], 0), ([1.0, -1e-3], [1.0, 1e-3], 1),
        ([True, False], [True, True], 1), (["a", "b"], ["a", "b"], 0), (["a", "1"], ["a", "2"], 1), ([1], [1, 1], 1),
    ):  # fmt: skip
        found = list(find_differences(pyarrow.table({"x": column}), pyarrow.table({"x": other}), 1e-6))
        assert len(found) == count, column
