"""Write docs/results.md from the bundles in experiments/*/results/: ``python docs/site/results.py``.

Every number on the page is read from a bundle. For the claims, all bundles are imported into a temporary output
folder, and the commands run there that the page tells its readers to run.
"""

import itertools
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from isobench.analyses.names import needs_training
from isobench.cli.choices import describe_choice
from isobench.common.packages import conf_dir
from isobench.common.terminal import format_count
from isobench.common.tidy import read_rows
from isobench.report.claims import load_claims
from isobench.statistics.seeds import ALPHA

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "results.md"
SHOWN_LINES = 70  # of an analysis's tables
INTRODUCTION = """# Results

<!-- docs/site/results.py writes this page from the bundles in experiments/*/results/: change these, not the page. -->

These results are in the repository. Each is a [bundle](how-to/bundles.md): the records, predictions, tables and
figures of one experiment, with the command that made it.

    isobench verify experiments/*/results/*                             # a minute for all
    isobench verify experiments/isobn/results/glue_isobn --retrain 2    # about a minute a run

Of runs, every score and every table is computed again from the predictions. Of an analysis that trains nothing, only
the sums of its files are compared: to check its numbers, run its command. On another kind of processor, runs that are
trained again are compared within a tolerance ([verify](how-to/verify.md)).

**Read them with care.** Training is short and on few examples, and encoders and data install as Python packages or
are named by `data.root`. Each section says how encoder and data differ from the paper's. Epochs, learning rate and
batch size differ too (`experiments/PAPER/experiment/NAME.yaml`). So few published scores can stand beside ours; the
[map](../experiments/README.md) has the commands at the papers' scale, which we have not run. Translation and
summarisation use generated texts and an untrained model: their results show that the code runs, and nothing about
real texts.
Tests compare means, also where a table shows medians as its paper does. Two runs at a time shared two processor
cores, so training times, and the claims on them, are rough. A training time of 1.03x (0.95-1.05) is the median over
the tasks of the ratio to plain fine-tuning's, and the range of these ratios.

In a command, `PATH/TO/data` stands for the folder that [data.root](how-to/usage.md) takes, and `encoder=mpnet` needs
`pip install 'isobench[mpnet]'`. The bundles have the licence CC-BY-4.0. Names of machines and folders were removed.
"""
CLAIMS_TEXT = """## The papers' claims

The table judges each [claim](reference/claims.md) by the runs and analyses on this page. "Holds" and "does not hold"
are true of these small runs only. To make the same table from the bundles:
"""


@dataclass
class Bundle:
    """A bundle that ships.

    Attributes:
        path: its folder.
        manifest: the content of its manifest.
        analysis: the settings of its analysis; empty without one.
    """

    path: Path
    manifest: dict[str, Any]
    analysis: dict[str, Any]

    @property
    def name(self) -> str:
        """Return the experiment's name."""
        return str(self.manifest["experiment"])

    def read(self, file: str) -> str:
        """Read a text of its report."""
        return (self.path / "report" / file).read_text("utf-8")

    def describe_runs(self) -> str:
        """Say how many runs it has, and of how many that are planned."""
        runs, planned = len(self.manifest["runs"]), self.manifest["planned"]
        if not runs:
            return "an analysis that trains nothing"
        return format_count(runs, "run") if runs == planned else f"{runs} of {planned} runs"

    def locate(self, file: str) -> str:
        """Return the path of a file of its report, relative to the page."""
        return os.path.relpath(self.path / "report" / file, PAGE.parent)


def main() -> None:
    """Write the page."""
    PAGE.write_text(write_page(find_bundles()), encoding="utf-8")


def find_bundles() -> list[Bundle]:
    """Find the bundles that ship, in the order of their paths."""
    return [read_bundle(file.parent) for file in sorted(ROOT.glob("experiments/*/results/*/manifest.json"))]


def read_bundle(path: Path) -> Bundle:
    """Read what the page needs of a bundle."""
    file = path / "report" / "about.json"
    analysis = orjson.loads(file.read_bytes())["analysis"] if file.is_file() else {}
    return Bundle(path, orjson.loads((path / "manifest.json").read_bytes()), analysis)


def write_page(bundles: list[Bundle]) -> str:
    """Return the page's text."""
    claims = judge_claims(bundles)
    parts = [INTRODUCTION, write_overview(bundles, claims), write_claims(bundles, claims)]
    return "\n\n".join(part.strip() for part in [*parts, *map(write_section, bundles)]) + "\n"


def write_overview(bundles: list[Bundle], claims: list[dict[str, Any]]) -> str:
    """Return the table of all bundles: what each has, and what came out."""
    lines = ["## Overview", "", "| experiment | what it has | outcome |", "|---|---|---|"]
    for bundle in bundles:
        if (bundle.path / "report" / "slopes.parquet").is_file():
            outcome = describe_slopes(bundle)
        elif bundle.analysis:
            outcome = "; ".join(
                f"{escape(claim['claim'])}: {claim['outcome']}"
                for claim in claims
                if claim["experiment"] == bundle.name
            )
        else:
            outcome = read_bold_lines(bundle.read("report.md"))[0].strip("*")
        outcome = outcome or "the tables and figures below"
        lines.append(f"| [{bundle.name}](#{bundle.name}) | {bundle.describe_runs()} | {outcome} |")
    return "\n".join(lines)


def describe_slopes(bundle: Bundle) -> str:
    """Say which slopes of a study of dose and response differ from 0, in the encoders and tasks that are complete."""
    rows = read_rows(bundle.path / "report", "slopes")
    slopes = [row for row in rows if row["complete"] and row["quantity"] == "score" and row["doses"] == "all doses"]
    found = [
        f"{row['dial']} on {row['task']} with {row['encoder']} ({row['over_dial']:+.2f} points over the whole dial)"
        for row in slopes
        if row["p_holm"] < ALPHA
    ]
    named = ", ".join(found) or "none"
    return f"of {len(slopes)} slopes of complete studies, these differ from 0 after Holm's correction: {named}"


def write_claims(bundles: list[Bundle], claims: list[dict[str, Any]]) -> str:
    """Return the table of the papers' claims, with the commands that make it."""
    names = {bundle.name for bundle in bundles}
    listed = list_commands(bundles, ["experiments/*/results/*"], "outputs/shipped")
    commands = "\n".join(f"    isobench {' '.join(command)}" for command in listed)
    counts = Counter(claim["outcome"] for claim in claims)
    count = ", ".join(f"{word}: {number}" for word, number in counts.most_common())
    rows = [
        "| paper | claim | outcome | numbers, or the command to run | setting | experiment |",
        "|---|---|---|---|---|---|",
    ]
    for claim in claims:
        name = claim["experiment"]
        cells = (escape(claim[column]) for column in ("paper", "claim", "outcome", "numbers", "scale"))
        rows.append(f"| {' | '.join(cells)} | {f'[{name}](#{name})' if name in names else f'`{name}`'} |")
    return "\n\n".join(
        [CLAIMS_TEXT.strip(), commands, f"{len(claims)} claims. {count.capitalize()}.", "\n".join(rows)]
    )


def write_section(bundle: Bundle) -> str:
    """Return the part of the page about one bundle: what it is, its first tables with their notes, figures, files."""
    description = describe_choice(Path(conf_dir(), "experiment", f"{bundle.name}.yaml"))
    commands = "\n".join(f"    {command}" for command in bundle.manifest["commands"])
    parts = [f"## {bundle.name}", escape(description), commands, f"In this bundle: {bundle.describe_runs()}."]
    links = []
    if bundle.analysis:
        parts.append(read_tables(bundle.read("tables.txt")))
        links.append(f"[all tables of the analysis]({bundle.locate('tables.txt')})")
    if bundle.manifest["runs"]:
        if not bundle.analysis:
            text = bundle.read("report.md")
            parts += [*read_bold_lines(text), read_first_table(text)]
        page = (bundle.path / "report" / "report.html").relative_to(ROOT)
        links.append(f"[the report]({bundle.locate('report.md')}), also as the page `{page}`")
    for name in sorted(file.name for file in (bundle.path / "report").glob("*.svg")):
        caption = re.sub(r"^figure(\d+)$", r"Like Figure \1 of the paper", Path(name).stem)
        parts.append(f"![{caption}]({bundle.locate(name)})\n\n*{caption}*")
    parts.append(f"More: {'; '.join(links)}.")
    return "\n\n".join(part for part in parts if part)


def read_bold_lines(text: str) -> list[str]:
    """Read the lines in bold of a report in Markdown: its verdict, and how its setting differs from the paper's."""
    return [line for line in text.splitlines() if re.fullmatch(r"\*\*.*\*\*", line)]


def read_first_table(text: str) -> str:
    """Read the first table of a report in Markdown, with the notes and the rule of selection that explain it."""
    lines = iter(text.splitlines())
    start = next(line for line in lines if line.startswith("|"))
    section = itertools.takewhile(lambda line: not line.startswith("## "), lines)
    selection = next(line for line in text.splitlines() if line.startswith("Selection: "))
    return "\n".join([start, *section]).strip() + f"\n\n{selection}"


def read_tables(text: str) -> str:
    """Read the first tables of an analysis and the notes after its last table, as code.

    The first table is always shown, and those after it up to ``SHOWN_LINES`` lines.
    """
    lines = [line.rstrip() for line in text.splitlines()]
    ends = [number + 1 for number, line in enumerate(lines) if line.startswith("└")]
    shown = max([ends[0], *(end for end in ends if end <= SHOWN_LINES)])
    return "\n".join(f"    {line}" for line in [*lines[:shown], *lines[ends[-1] :]])


def judge_claims(bundles: list[Bundle]) -> list[dict[str, Any]]:
    """Import all bundles into a temporary output folder and judge the claims there; return a row for each claim."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        for command in list_commands(bundles, [str(bundle.path) for bundle in bundles], folder):
            program = [sys.executable, "-m", "isobench", *command]
            subprocess.run(program, check=True, stdout=subprocess.DEVNULL, cwd=ROOT, env=environment)
        return read_rows(Path(folder, "reports"), "claims")


def list_commands(bundles: list[Bundle], places: list[str], output_dir: str) -> list[list[str]]:
    """List the commands, without isobench itself, that import all bundles and judge the claims.

    Args:
        bundles: those that ship.
        places: their paths, or a pattern of them.
        output_dir: the folder that they are imported into.
    """
    judged = {claim.experiment for claim in load_claims()}
    trained = [bundle.name for bundle in bundles if needs_training(bundle.analysis) and bundle.name in judged]
    commands = [["import", *places], *(["report", f"+experiment={name}"] for name in trained), ["report"]]
    return [[*command, f"output_dir={output_dir}"] for command in commands]


def escape(text: str) -> str:
    """Write a text so that Markdown shows it as it is, also in a cell of a table.

    An underscore within a word needs no backslash, and commands are easier to copy without.
    """
    return re.sub(r"([\\`*\[\]<>|])", r"\\\1", text)


if __name__ == "__main__":
    main()
