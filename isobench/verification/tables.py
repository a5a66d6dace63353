"""Make the files of a report again from the records, and compare them with those that are stored."""

from collections.abc import Collection, Mapping
from dataclasses import replace

import orjson
import pyarrow
import pyarrow.csv

from isobench.common.checksums import drop_json_checksum
from isobench.common.errors import UserError, extract_first_line
from isobench.common.reading import SETTINGS_LIMIT
from isobench.common.terminal import format_count
from isobench.common.tidy import guard_table, list_columns, make_table
from isobench.config.bounds import convert_value
from isobench.config.schema import Experiment
from isobench.report.analysis_outcome import read_outcome
from isobench.report.document import Report
from isobench.report.example_pairs import ExamplePairs
from isobench.report.files import PAGE_FILE, list_statuses
from isobench.report.html import render_report
from isobench.report.markdown_latex import format_latex, format_markdown
from isobench.report.old_build import build_report
from isobench.runs.folder import RunFolder
from isobench.runs.identity import Identity
from isobench.runs.layout import REPORT_FILE, run_folder_name
from isobench.runs.row import Row
from isobench.verification.folder import VerifiedFolder
from isobench.verification.ledger import Ledger
from isobench.verification.run_check import CheckedRun, Code
from isobench.verification.stored_report import compare_file, compare_rows, compare_unpaired_text
from isobench.verification.stored_table import ENDED, find_early_scores, read_stored_table, select_rows


def check_report(
    folder: VerifiedFolder, path: str, runs: Mapping[str, CheckedRun], code: Code, ledger: Ledger
) -> None:
    """Make a report again from the records of the runs that its rows list, and compare every file of it.

    Args:
        folder: the verified folder.
        path: of the report's folder.
        runs: the runs of the folder by name, as they were checked.
        code: the version that verifies.
        ledger: where the outcomes go.
    """
    try:
        stored = read_stored_table(folder, f"{path}/runs.parquet")
        statuses = dict(zip(stored["key"].to_pylist(), stored["status"].to_pylist(), strict=True))
        experiment, is_same_code, notes = read_origin(folder, path, runs, code)
    except Exception as error:  # a damaged or foreign file may raise anything
        ledger.fail(f"{path}/runs.parquet", "tables", f"it can't be used: {extract_first_line(error)}")
        return
    for key in find_early_scores(stored):
        ledger.fail(f"{path}/runs.parquet", "tables", f"it has a score of the run {key}, which had not ended")
    if not require_records(path, statuses, runs, folder.is_bundle, ledger):
        return
    rows = [make_row(folder, runs[key], status, experiment) for key, status in statuses.items() if key in runs]
    if not rows:
        ledger.skip(path, "tables", f"it lists {len(statuses)} run(s) that had not ended and have no folder")
        return
    try:
        report = build_report(experiment, rows, ExamplePairs())
        report.notes += notes
        expected = render_files(report, folder, path)
        if len(rows) < len(statuses):
            compare_known_rows(folder, path, statuses.keys() & runs.keys(), expected, ledger)
            return
        lacks_predictions = any(lost_predictions(runs[key]) for key in statuses)
        unpaired = render_texts(build_report(experiment, rows), folder, path) if lacks_predictions else {}
    except Exception as error:  # as above
        ledger.fail(path, "tables", f"its report can't be made from the records: {extract_first_line(error)}")
        return
    for file, content in expected.items():
        name = f"{path}/{file}"
        if file in unpaired and folder.has(name):
            assert isinstance(content, bytes)
            compare_unpaired_text(folder, name, content, unpaired[file], ledger)
        else:
            compare_file(folder, name, content, is_same_code, ledger)


def lost_predictions(run: CheckedRun) -> bool:
    """Return True if a run's record names predictions that are not in its folder."""
    return run.record is not None and run.record.predictions is not None and run.labels is None


def compare_known_rows(
    folder: VerifiedFolder,
    path: str,
    keys: Collection[str],
    expected: Mapping[str, pyarrow.Table | bytes],
    ledger: Ledger,
) -> None:
    """Compare the rows of the runs that are in the folder, if a report lists others that had not ended.

    What depends on all runs together is not compared: the texts, and which runs are selected.
    """
    for name in ("runs", "epochs"):
        file = f"{path}/{name}.parquet"
        try:
            stored = read_stored_table(folder, file)
            compare_rows(file, select_rows(stored, keys), expected[f"{name}.parquet"], ledger)
            compare_file(folder, f"{path}/{name}.csv", format_csv(stored), True, ledger)
        except Exception as error:  # a damaged or foreign file may raise anything
            ledger.fail(file, "tables", f"it can't be used: {extract_first_line(error)}")
    ledger.skip(path, "tables", "it lists runs that had not ended and have no folder: only its rows are compared")


def render_page(report: Report, folder: VerifiedFolder, path: str) -> bytes:
    """Make the page of a report: with the outcome of the folder's analysis, unless it was written without it."""
    page, name = render_report(report).encode(), f"{path}/{PAGE_FILE}"
    has_links = any(refused.startswith(f"{path}/") for refused in folder.refused)
    outcome = None if has_links else read_outcome(folder.root / path, list_statuses(report))
    if outcome is None or (folder.has(name) and folder.read(name) == page):
        return page
    return render_report(report, outcome).encode()


def read_origin(
    folder: VerifiedFolder, path: str, runs: Mapping[str, CheckedRun], code: Code
) -> tuple[Experiment, bool, list[str]]:
    """Read what a report was made with: the experiment, whether this version's code made it, and its added notes.

    An earlier version did not write this down. Then the experiment is that of a run of this name, and the code that
    of the runs.

    Raises:
        ValueError, UserError: it was changed, or can't be told.
    """
    name = f"{path}/{REPORT_FILE}"
    if folder.has(name) or name in folder.refused:
        content = orjson.loads(folder.read(name, SETTINGS_LIMIT))
        try:
            drop_json_checksum(content)
        except ValueError:
            raise ValueError(f"{REPORT_FILE} was changed after it was written") from None
        experiment = convert_value("experiment", content["experiment"], Experiment)
        commit = (content["code"]["git"] or {}).get("commit")
        is_same_code = (commit, content["code"]["isobench"]) == (code.commit, code.version)
        return experiment, is_same_code, [str(note) for note in content.get("notes", [])]
    own = path.rpartition("/")[2]
    named = [run for run in runs.values() if run.cfg and run.record]
    for run in named:
        assert run.cfg is not None
        if folder.is_bundle or (run.cfg.experiment.name or "runs") == own:
            return run.cfg.experiment, all(code.wrote(run.record.provenance) for run in named if run.record), []
    raise UserError(f"no run is of the experiment {own}")


def require_records(
    path: str, statuses: Mapping[str, str], runs: Mapping[str, CheckedRun], is_bundle: bool, ledger: Ledger
) -> bool:
    """Return True if every ended run of a report can be put into it again; note what is wrong otherwise."""
    problems, ended_since = [], []
    for key, status in statuses.items():
        run = runs.get(key)
        if run is None:
            if status in ENDED:
                problems.append(f"it lists the run {key}, which is missing")
        elif run.record is not None and status not in ENDED:
            ended_since.append(key)
        elif run.cfg is None or (run.record is None and status in ENDED):
            problems.append(f"it lists the run {key}, whose record or config can't be used")
        elif run.has_unusable_predictions:
            problems.append(f"it lists the run {key}, whose predictions can't be used")
    if ended_since:
        more = f" and {format_count(len(ended_since) - 1, 'other')}" if ended_since[1:] else ""
        problems.append(
            f"it was made before the run {ended_since[0]}{more} ended: make it again with isobench report"
        )
    if is_bundle:
        problems += [f"it lacks the run {key}" for key in runs if key not in statuses]
    for problem in problems:
        ledger.fail(path, "tables", problem)
    return not problems


def make_row(folder: VerifiedFolder, run: CheckedRun, status: str, experiment: Experiment) -> Row:
    """Make the row of a run, from its own files and in this folder, for a report of an experiment."""
    assert run.cfg is not None
    output_dir, record = str(folder.root), run.record
    cfg = replace(run.cfg, output_dir=output_dir, experiment=experiment)
    key = record.key if record else run.name
    identity = Identity(key, record.data.fingerprint, record.encoder.fingerprint) if record else None
    state = status if record is None else "failed" if record.failure else "done"
    checked = key if run_folder_name(key) == run.name else run.name  # the record may be another run's
    return Row(cfg, RunFolder(output_dir, checked), record, state, identity=identity)


def render_files(report: Report, folder: VerifiedFolder, path: str) -> dict[str, pyarrow.Table | bytes]:
    """Make every file of a report: name -> a table for Parquet, or the bytes of any other file."""
    files: dict[str, pyarrow.Table | bytes] = {}
    for name, columns in (("runs", list_columns(report.runs)), ("epochs", report.epochs)):
        table = make_table(columns)
        files |= {f"{name}.parquet": table, f"{name}.csv": format_csv(table)}
    return files | render_texts(report, folder, path)


def render_texts(report: Report, folder: VerifiedFolder, path: str) -> dict[str, bytes]:
    """Make the texts of a report, by their files' names."""
    texts = {"report.md": format_markdown(report).encode(), "tables.tex": format_latex(report).encode()}
    return texts | {PAGE_FILE: render_page(report, folder, path)}


def format_csv(table: pyarrow.Table) -> bytes:
    """Return the CSV file of tidy rows."""
    buffer = pyarrow.BufferOutputStream()
    pyarrow.csv.write_csv(guard_table(table), buffer)
    content: bytes = buffer.getvalue().to_pybytes()
    return content
