"""The docs site: built without a network, complete, the same pages as in the repository, readable and searchable."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import ROOT

pytest.importorskip("mkdocs", reason="mkdocs is not installed (pip install 'isobench[docs]')")
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("site")]

NO_NETWORK = """import socket
def refuse(self, address):
    raise OSError(f"no network here: {address}")
socket.socket.connect = socket.socket.connect_ex = refuse
"""
LOADED = re.compile(r"""<(?:script|img|iframe|link)\b[^>]*?\s(?:src|href)=["']?([^"'\s>]+)""")


@pytest.fixture(scope="module")
def offline(tmp_path_factory):
    folder = tmp_path_factory.mktemp("offline")
    (folder / "sitecustomize.py").write_text(NO_NETWORK)
    return {**os.environ, "PYTHONPATH": f"{folder}:{ROOT}"}


@pytest.fixture(scope="module")
def site(offline, tmp_path_factory):
    """The site, built by the command of the Makefile with this Python, without a network."""
    folder = tmp_path_factory.mktemp("site")
    here = [f"BIN={Path(sys.executable).parent}", f"SITE={folder}", "-o", ".venv/.installed"]
    done = subprocess.run(["make", "docs", *here], cwd=ROOT, env=offline, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "build --strict" in done.stdout
    return folder


def test_no_page_loads_anything_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 60
    loaded = {target for page in pages for target in LOADED.findall(page.read_text())}
    assert any(target.endswith(".css") for target in loaded)
    pictures = {picture for page in pages for picture in re.findall(r'<img[^>]* src="([^"]+)"', page.read_text())}
    assert any(target.endswith(".svg") for target in pictures)
    assert [target for target in pictures if target.endswith(".html")] == []
    assert [target for target in loaded if target.startswith(("http:", "https:", "//"))] == []
    styles = "".join(file.read_text() for file in site.rglob("*.css"))
    assert re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//[^)]*", styles) == []
