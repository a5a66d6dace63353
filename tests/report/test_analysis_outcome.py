"""The page of an experiment shows its analysis: escaped, and only the files that about.json vouches for."""

import base64
import hashlib

import pytest
import sample_report
from test_html import EVIL, Page

from isobench.common.checksums import add_json_checksum
from isobench.common.files import write_json
from isobench.report.analysis_outcome import read_outcome
from isobench.report.files import write_report_files

SVG = f"<svg xmlns='http://www.w3.org/2000/svg'>{EVIL}</svg>".encode()
FILES = {"tables.txt": f"slope 1.25 {EVIL}".encode(), "dose.svg": SVG, "dose.png": b"x", "doses.csv": b"y"}


@pytest.fixture
def folder(tmp_path):
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()}
    write_json(tmp_path / "about.json", add_json_checksum({"sha256": digests}))
    return tmp_path


def test_the_page_shows_tables_and_figures_and_runs_nothing(folder):
    report = sample_report.sample(encoders=["bert"], tasks=["sst2"], epochs=1)
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
    assert read_outcome(folder) is not None
    (folder / name).write_bytes((folder / name).read_bytes().replace(b"1", b"2").replace(b"svg", b"gvs"))
    assert read_outcome(folder) is None
    (folder / name).unlink()
    assert read_outcome(folder) is None


@pytest.mark.parametrize("content", ["[]", "{}", '{"sha256": 1}', '{"sha256": {"../a.svg": "b"}}', "{"])
def test_an_about_file_that_vouches_for_nothing_shows_nothing(folder, content):
    (folder / "about.json").write_text(content)
    assert read_outcome(folder) is None
