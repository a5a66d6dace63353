"""The page of an experiment shows the analysis of its runs: escaped, and only files that about.json vouches for."""

import base64
import hashlib
import json

import pytest
import sample_report
from test_html import EVIL, Page

from isobench.common.checksums import JSON_ENTRY, add_json_checksum
from isobench.common.files import write_json
from isobench.report.analysis_outcome import read_outcome
from isobench.report.files import write_report_files
from isobench.runs.layout import run_folder_name

SVG = f"<svg xmlns='http://www.w3.org/2000/svg'>{EVIL}</svg>".encode()
FILES = {"tables.txt": f"slope 1.25 {EVIL}".encode(), "dose.svg": SVG, "dose.png": b"x", "doses.csv": b"y"}
KEYS = ["a" * 64, "b" * 64, "c" * 64]
NAMES = [run_folder_name(key) for key in KEYS]
STATUSES = {NAMES[0]: "finished", NAMES[1]: "failed", NAMES[2]: "missing"}


def write_about(folder, **content):
    """Write the about.json of an analysis of these runs, two of which had ended."""
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()}
    about = {"sha256": digests, "keys": KEYS, "ended": KEYS[:2], **content}
    write_json(folder / "about.json", add_json_checksum(about))


@pytest.fixture
def folder(tmp_path):
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    write_about(tmp_path)
    return tmp_path


def test_the_page_shows_tables_and_figures_and_runs_nothing(folder):
    report = sample_report.sample(encoders=["bert"], tasks=["sst2"], epochs=1)
    report.runs = [{**report.runs[0], "key": name, "status": status} for name, status in STATUSES.items()]
    write_report_files(report, folder)
    html = (folder / "report.html").read_text()
    page = Page(html)
    assert EVIL not in html
    assert f"slope 1.25 {EVIL}" in page.text
    (image,) = page.all("img")
    kind, _, content = image["src"].partition(",")
    assert (kind, base64.b64decode(content)) == ("data:image/svg+xml;base64", SVG)
    assert {"href": "#analysis"} in page.all("a")
    (folder / "about.json").unlink()
    write_report_files(report, folder)
    assert "analysis" not in {
        section.get("id") for section in Page((folder / "report.html").read_text()).all("section")
    }


@pytest.mark.parametrize("name", ["tables.txt", "dose.svg", "about.json"])
def test_a_changed_or_missing_file_shows_nothing(folder, name):
    assert read_outcome(folder, STATUSES) is not None
    (folder / name).write_bytes((folder / name).read_bytes().replace(b"1", b"2").replace(b"svg", b"gvs"))
    assert read_outcome(folder, STATUSES) is None
    (folder / name).unlink()
    assert read_outcome(folder, STATUSES) is None


@pytest.mark.parametrize("content", ["[]", "{}", '{"sha256": 1}', '{"sha256": {"../a.svg": "b"}}', "{"])
def test_an_about_file_that_vouches_for_nothing_shows_nothing(folder, content):
    (folder / "about.json").write_text(content)
    assert read_outcome(folder, STATUSES) is None


@pytest.mark.parametrize(
    ("keys", "ended", "is_shown"),
    [
        (KEYS, KEYS[:2], True),
        (KEYS[:1], KEYS[:1], True),  # an analysis that is given the finished runs only
        (KEYS, KEYS[:1], False),  # a run has ended since
        (KEYS[:2], KEYS[:2], False),  # other runs: a failed one, but not the missing one
        ([*KEYS, "d" * 64], KEYS[:2], False),
        ([1], [1], False),
    ],
)
def test_a_page_shows_no_analysis_of_other_runs_or_of_fewer(folder, keys, ended, is_shown):
    write_about(folder, keys=keys, ended=ended)
    assert (read_outcome(folder, STATUSES) is not None) == is_shown


def test_an_earlier_versions_analysis_stands_if_all_of_its_runs_had_ended(folder):
    write_about(folder, keys=KEYS[:1])
    about = json.loads((folder / "about.json").read_text())
    del about["ended"]
    (folder / "about.json").write_text(json.dumps(about))
    assert read_outcome(folder, STATUSES) is None  # it was changed
    del about[JSON_ENTRY]
    write_json(folder / "about.json", add_json_checksum(about))
    assert read_outcome(folder, STATUSES) is not None
    assert read_outcome(folder, {**STATUSES, NAMES[2]: "finished"}) is None
