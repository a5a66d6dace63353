"""Write docs/results.md from the bundles in experiments/*/results/: ``python docs/site/results.py``.

Every number on the page is read from a bundle. The claims are judged in a temporary output folder into which all
bundles are imported, as a reader would do it.
"""

import itertools
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import orjson

from isobench.common.terminal import format_count
from isobench.common.tidy import read_rows

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "results.md"
INTRODUCTION = """# Results

<!-- docs/site/results.py writes this page from the bundles in experiments/*/results/: change these, not the page. -->

These results ship with the repository. Each is a [bundle](how-to/bundles.md): the records, predictions, tables and
figures of one experiment, with the command that made it. You can check each in seconds, and train some of its runs
again:

    isobench verify experiments/isobn/results/glue_isobn
    isobench verify experiments/isobn/results/glue_isobn --retrain 2

None is in a paper's setting: they come from small encoders and small training sets, on a machine with two processor
cores and no GPU. Each says what differs. The [map](../experiments/README.md) has the commands at the papers' scale.
"""
CLAIMS = """## The papers' claims

These are the papers' [claims](reference/claims.md), judged by the runs and analyses on this page, so at their small
scale. To make the same table from the bundles:

    isobench import experiments/*/results/* output_dir=shipped
    isobench report output_dir=shipped
"""


def main() -> None:
    """Write the page."""
    PAGE.write_text(write_page(find_bundles()), encoding="utf-8")


def find_bundles() -> list[Path]:
    """Find the bundles that ship, in the order of their paths."""
    return sorted(file.parent for file in ROOT.glob("experiments/*/results/*/manifest.json"))


def write_page(bundles: list[Path]) -> str:
    """Return the page's text."""
    overview = ["## Overview", "", "| experiment | what ships | what it shows |", "|---|---|---|"]
    overview += [write_overview_row(bundle) for bundle in bundles]
    claims = f"{CLAIMS}\n{write_claims(bundles)}"
    sections = [write_section(bundle) for bundle in bundles]
    return "\n\n".join(part.strip() for part in [INTRODUCTION, "\n".join(overview), claims, *sections]) + "\n"


def write_overview_row(bundle: Path) -> str:
    """Return the line of a bundle in the table of all."""
    manifest = orjson.loads((bundle / "manifest.json").read_bytes())
    runs, planned = len(manifest["runs"]), manifest["planned"]
    ships = "an analysis that trains nothing"
    if runs:
        ships = format_count(runs, "run") if runs == planned else f"{runs} of {planned} runs"
    verdict = read_bold_lines(bundle)[0].strip("*") if runs else "its tables and figures"
    return f"| [{bundle.name}](#{bundle.name}) | {ships} | {verdict} |"


def write_section(bundle: Path) -> str:
    """Return the part of the page about one bundle: its setting, its first table, its figures, its files."""
    report = bundle / "report"
    place = os.path.relpath(report, PAGE.parent)
    manifest = orjson.loads((bundle / "manifest.json").read_bytes())
    parts = [f"## {bundle.name}", "\n".join(f"    {command}" for command in manifest["commands"])]
    links = []
    if (report / "report.md").is_file():
        parts += [*read_bold_lines(bundle), read_first_table((report / "report.md").read_text("utf-8"))]
        page = report.relative_to(ROOT) / "report.html"
        links.append(f"[the report]({place}/report.md), also as the page `{page}`")
    if (report / "tables.txt").is_file():
        if not manifest["runs"]:
            parts.append(describe_setting(orjson.loads((report / "about.json").read_bytes())))
            parts.append(read_first_box((report / "tables.txt").read_text("utf-8")))
        links.append(f"[all tables of the analysis]({place}/tables.txt)")
    parts += [f"![{bundle.name}: {file.stem}]({place}/{file.name})" for file in sorted(report.glob("*.svg"))]
    parts.append(f"More: {'; '.join(links)}.")
    return "\n\n".join(parts)


def read_bold_lines(bundle: Path) -> list[str]:
    """Read the lines of a report that stand out: its verdict, and how its setting differs from the paper's."""
    lines = (bundle / "report" / "report.md").read_text("utf-8").splitlines()
    return [line for line in lines if re.fullmatch(r"\*\*.*\*\*", line)]


def read_first_table(text: str) -> str:
    """Read the first table of a report in Markdown."""
    return "\n".join(itertools.takewhile(bool, text[text.index("\n|") + 1 :].split("\n")))


def read_first_box(text: str) -> str:
    """Read the first table of an analysis with its title, as a block of code."""
    lines = text.splitlines()
    end = next(number for number, line in enumerate(lines) if line.startswith("└"))
    return "\n".join(f"    {line}".rstrip() for line in lines[: end + 1])


def describe_setting(about: dict[str, Any]) -> str:
    """Say how an analysis's setting differs from the paper's."""
    return (
        f"**Not the paper's setting: {'; '.join(about['scale']['differs'])}.**" if about["scale"]["differs"] else ""
    )


def write_claims(bundles: list[Path]) -> str:
    """Import all bundles into a temporary output folder, and return the table of the claims judged there."""
    with tempfile.TemporaryDirectory() as folder:
        output_dir = f"output_dir={folder}/outputs"
        run_isobench("import", *map(str, bundles), output_dir)
        for bundle in bundles:
            about = bundle / "report" / "about.json"
            if about.is_file() and orjson.loads(about.read_bytes())["analysis"].get("trains"):
                run_isobench("report", f"+experiment={bundle.name}", output_dir)
        run_isobench("report", output_dir)
        claims = read_rows(Path(folder, "outputs", "reports"), "claims")
    shipped = {orjson.loads((bundle / "manifest.json").read_bytes())["experiment"] for bundle in bundles}
    rows = ["| paper | claim | outcome | numbers, or the command to run | experiment |", "|---|---|---|---|---|"]
    for claim in claims:
        name = claim["experiment"]
        place = f"[{name}](#{name})" if name in shipped else f"`{name}`"
        cells = (escape(claim[column]) for column in ("paper", "claim", "outcome", "numbers"))
        rows.append(f"| {' | '.join(cells)} | {place} |")
    return "\n".join(rows)


def escape(text: str) -> str:
    """Write a text so that Markdown shows it as it is, in a cell of a table."""
    return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", text)


def run_isobench(*arguments: str) -> None:
    """Run a command of isobench; raise CalledProcessError if it fails."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [sys.executable, "-m", "isobench", *arguments], check=True, capture_output=True, cwd=ROOT, env=environment
    )


if __name__ == "__main__":
    main()
