"""Write docs/results.md, docs/results/*.md, docs/wanted.md and docs/figures: ``python docs/site/results.py``.

Every number on the pages of results is computed from a bundle in experiments/*/results/. For the claims, bundles are
imported into temporary output folders, no two of one experiment into the same, and the commands run there that the
page tells its readers to run.
"""

import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet
import yaml
from beside_print import (
    OURS_NOTE,
    PRINT_NOTE,
    Gain,
    describe_gains,
    draw_gains,
    find_means,
    list_gains,
    tabulate_gains,
    write_beside_print,
    write_gains,
)
from rich.table import Table
from rich.text import Text
from wanted import WANTED, write_wanted

from isobench.analyses.rows import read_stored_rows
from isobench.analyses.runner import find_analysis, show_stored_analysis
from isobench.analyses.shown import Shown
from isobench.bundles.manifest import ANALYSIS_FOLDER, PLAN_FILE
from isobench.cli.choices import describe_choice
from isobench.common.plots import use_figure_style
from isobench.common.terminal import format_count, name_some
from isobench.data.weights import format_encoder_name
from isobench.papers.folders import find_config
from isobench.report.build import Report, build_report
from isobench.report.claims import NOT_RUN, UNKNOWN, load_claims
from isobench.report.output.templating import escape_markdown
from isobench.report.output.text import list_rows
from isobench.runs.bundled import RECORDS_FILE, read_records
from isobench.runs.folder import ABOUT_FILE
from isobench.runs.plan import Plan, parse_plan
from isobench.runs.run import Run
from isobench.runs.state import add_states
from isobench_papers.isotropy_dial.show import describe_outcome

ROOT = Path(__file__).resolve().parents[2]
INDEX = ROOT / "docs" / "results.md"
PAGES = ROOT / "docs" / "results"  # a page for each experiment
GROUPS = {  # heading -> folders of experiments; others are papers, by the scale nearest to print
    "Papers, laptop scale": (),
    "Papers, embedded scale": (),
    "Studies of our own": ("causes", "glue_few_sample", "isotropy_dial", "retrieval", "whitening_map"),
    "Checks": ("mteb", "probe"),
}
FIGURES = ROOT / "docs" / "figures"  # NAME-FIGURE.svg of the experiment NAME
LONGEST_TABLE = 45  # rows of an analysis' table that is shown; isobench report BUNDLE prints the others
FOLD = '<details markdown="1"><summary>Commands, notes and folded claims</summary>'
WARNING = "<!-- docs/site/results.py writes this page from the bundles in experiments/*/results/. -->"
NAMES = {  # of scales, encoders and settings -> what they are
    "embedded": "*Embedded* is short training on few examples, with encoders that install as packages.",
    "laptop": "*Laptop* is close to a paper's protocol, on its small tasks and with such encoders.",
    "minilm": "*minilm* is all-MiniLM-L6-v2, whose pooler came untrained.",
    "mpnet": "*mpnet* is all-mpnet-base-v2, whose pooler came untrained.",
    "distilbert-quire": "*distilbert-quire* is a DistilBERT tuned for grammar correction, without a pooler.",
    "bart-scratch": "*bart-scratch* is a small untrained model, with generated texts.",
    "\\_found": "*found*: we set spectrum control's strength so that a run on CoLA predicts one class, as in print.",
}
FOUND_HEADER = "| experiment | what was run | what it found |\n|---|---|---|\n"
INTRODUCTION = f"""# Results

{WARNING}

What each experiment found, in a sentence or two. Its page has tables, figures, claims and commands.
**No paper's row has the paper's own setting.** *Plain* is fine-tuning without a method,
*print* what the paper prints; means of its cells are ours.
"""
GAINS_TITLE = "## Do the methods help? Real GLUE tasks, laptop scale"
GAINS_NOTE = f"""{OURS_NOTE} {PRINT_NOTE} Isobn prints medians. Means are over the tasks that have ended, without
spectrum control's STS-B, which has no score. In print, cosine loses 24.13 on STS-B, where plain's SD is 41."""
READING = """## Check them

All of these results are in the repository. Each is a [bundle](how-to/bundles.md): the records, predictions and rows
of one experiment, with the licence CC-BY-4.0.

    isobench verify experiments/*/results/*                # all of them, in 15 seconds
    isobench report experiments/isobn/results/glue_isobn   # its page, all tables and figures
    isobench verify experiments/isobn/results/glue_isobn --retrain 2 data.root=PATH/TO/data  # about a minute a run

In a command, `PATH/TO/data` is the folder of [data.root](how-to/usage.md#data), and `encoder=mpnet` needs
`pip install -e '.[mpnet]'`. Names of machines and folders were removed. Two runs at a time shared two cores, so
training times, and the claims on them, are rough.
"""
CLAIMS_TEXT = """## The papers' claims

Each page has the [claims](reference/claims.md) that its runs or its analysis can judge. "Holds" and "does not hold"
are of a paper's own setting; the one that holds is of mteb's published scores. "Seen here", "not seen here" and
"can't tell here" are of another, and neither support nor contradict the paper. No p is corrected for the other
claims. To judge those of a bundle, where NAME is its experiment:

    isobench import BUNDLE output_dir=outputs/judged
    isobench report +experiment=NAME output_dir=outputs/judged
    isobench report --claims all output_dir=outputs/judged

Bundles of several experiments may share a folder. Two of the same experiment would be judged together.
"""
OUTSIDE = "outside the papers' settings"
FOUND = yaml.safe_load(Path(__file__).with_name("found.yaml").read_text(encoding="utf-8"))
NOTES = {  # bundle -> what its numbers can't say
    "drop_last": "CoLA without the last batch, whose 7 rows weigh most in the printed momentum. Plain was added when "
    "isobn\\_paper's runs had been seen, so their comparison is an afterthought (laptop.md).",
    "fresh_seeds": "More seeds of plain on CoLA, registered when seeds 1 to 5 had scored low (laptop.md).",
    "glue_adaptation_laptop": "The runs shared their cores with other work: training times say nothing here.",
    "glue_calibration_laptop": "The runs shared their cores with other work: training times say nothing here.",
    "glue_isobn_laptop": "The runs shared their cores with other work: training times say nothing here.",
    "slow_flow": "The flow at the encoder's rate, added when the flow's other runs had been seen (laptop.md).",
}
FOUND_PLACE = r"(?s)(?<=<!-- docs/site/results.py writes this -->\n).*?(?=<!-- until here -->)"
SCALES = ("paper", "laptop", "embedded")  # in the order of their sections


class Bundle:
    """A bundle that ships: its folder, experiment, scale and plan, and its runs, none if it is an analysis."""

    def __init__(self, path: Path) -> None:
        """Read the bundle."""
        self.path, self.name = path, path.name
        self.plan: Plan = parse_plan((path / PLAN_FILE).read_bytes(), str(path))
        self.experiment = self.plan.experiment or self.name
        (self.scale,) = {cfg.scale for cfg, _ in self.plan.runs}
        self.is_extra = not self.name.startswith(self.experiment)  # runs beside a registered plan: no claim is judged
        self.has_runs = (path / RECORDS_FILE).exists()
        self.has_analysis = (path / ANALYSIS_FOLDER).is_dir()

    def describe_runs(self) -> str:
        """Say how many runs it has."""
        return f"It has {self.count_runs()}." if self.has_runs else "It trains nothing."

    def count_runs(self) -> str:
        """Count the runs that ended, of those that are planned."""
        ended, planned = len(read_records(self.path)), format_count(len(self.plan.runs), "run")
        return f"{ended} of {planned}" if ended < len(self.plan.runs) else planned

    def describe_origin(self) -> str:
        """Say by which commits and on which machines it was computed."""
        commits, machines = {}, {}  # as sets that keep their order
        texts = [file.read_bytes() for file in self.path.glob(f"{ANALYSIS_FOLDER}/{ABOUT_FILE}")]
        for text in [*texts, *read_records(self.path).values()]:
            found = json.loads(text)["provenance"]
            git = found["git"]
            commit = git["commit"][:10] + " with changes" * git["dirty"] if git else "unknown, an installed package"
            commits[commit] = None
            machines[", ".join(dict.fromkeys(found["gpus"])) or f"{found['cpu']}, {found['cores']} cores"] = None
        return escape(f"Commit: {', '.join(commits)}. Machine: {'; '.join(machines)}.")

    def build_report(self) -> Report:
        """Build the report of its runs."""
        rows = add_states([Run.of(cfg, identity.key, identity) for cfg, identity in self.plan.runs])
        return build_report(rows[0].cfg.experiment, rows)


@dataclass
class Section:
    """Hold what a page says of one bundle, as paragraphs of Markdown."""

    outcome: str
    visible: list[str]
    folded: list[str]
    front: list[str]  # what the paper's own page shows too
    gains: list[Gain]  # over plain, of tasks that print has


def main() -> None:
    """Write the pages, and draw those of the analyses' figures again that docs/figures has."""
    PAGES.mkdir(exist_ok=True)
    pages = write_pages(find_bundles())
    for old in set(PAGES.glob("*.md")) - pages.keys():
        old.unlink()
    for file, text in {**pages, WANTED: write_wanted()}.items():
        file.write_text(text, encoding="utf-8")


def show_analysis(bundle: Bundle) -> Shown:
    """Show a bundle's analysis, and draw those of its figures again that docs/figures has."""
    with tempfile.TemporaryDirectory() as folder:
        shown = show_stored_analysis(bundle.path / ANALYSIS_FOLDER, find_analysis(bundle.experiment), Path(folder))
        for drawn in Path(folder).glob("*.svg"):
            figure = FIGURES / f"{bundle.name}-{drawn.name}"
            if figure.exists():
                figure.write_bytes(drawn.read_bytes())
    return shown


def list_verdicts(shown: Shown) -> str:
    """List an analysis' registered statements by verdict, each with the number of its tests that have it."""
    verdicts: dict[str, Counter[str]] = {}
    for table in shown.tables:
        columns = {column.header: list(column.cells) for column in table.columns}
        if str(table.title).startswith("Registered"):
            for verdict, statement in zip(columns["verdict"], columns["statement"], strict=True):
                verdicts.setdefault(verdict, Counter())[statement] += 1
    tests = sum(verdicts.values(), Counter())
    return "\n".join(
        f"- **{verdict.capitalize()}**: {'; '.join(f'{name} ({own[name]} of {tests[name]})' for name in own)}"
        for verdict, own in verdicts.items()
    )


def find_bundles() -> list[Bundle]:
    """Find the bundles that ship, in the order of their paths."""
    return [Bundle(file.parent) for file in sorted(ROOT.glob(f"experiments/*/results/*/{PLAN_FILE}"))]


def write_pages(bundles: list[Bundle]) -> dict[Path, str]:
    """Return the text of the index, of each experiment's page and of the papers' own pages, by file."""
    claims = judge_claims(bundles)
    pages, rows, gains = {}, {heading: [] for heading in GROUPS}, list[Gain]()
    parts: dict[Path, list[tuple[str, list[str]]]] = {}  # a paper's own page -> its experiments' rows and fronts
    for name in dict.fromkeys(bundle.experiment for bundle in bundles):
        own = [bundle for bundle in bundles if bundle.experiment == name]
        own.sort(key=lambda bundle: (bundle.is_extra, SCALES.index(bundle.scale)))
        sections = [write_section(bundle, [one for one in claims if one["bundle"] == bundle.name]) for bundle in own]
        pages[PAGES / f"{name}.md"] = write_page(name, own, sections)
        found = FOUND.get(name) or shorten(sections[0].outcome)
        front = [part for section in sections for part in section.front]
        folder = own[0].path.parents[1]
        means = [gain for section in sections for gain in find_means(section.gains)]
        gains += [replace(gain, method=f"{folder.name}: {gain.method}") for gain in means]
        paper = f"Papers, {own[0].scale} scale"
        heading = next((title for title, folders in GROUPS.items() if folder.name in folders), paper)
        row = f"{name}.md) | {describe_scales(own)} | {found} |"
        rows[heading].append(f"| [{name}](results/{row}")
        parts.setdefault(folder / "README.md", []).append((f"| [{name}](../../docs/results/{row}", front))
    for file, own_parts in parts.items():
        text = file.read_text(encoding="utf-8")
        if place := re.search(FOUND_PLACE, text):
            pages[file] = text[: place.start()] + write_found(own_parts) + text[place.end() :]
    tables = [f"## {heading}\n\n{FOUND_HEADER}" + "\n".join(lines) for heading, lines in rows.items() if lines]
    shown = [GAINS_TITLE, tabulate_gains(gains), GAINS_NOTE, *tables]
    index = [INTRODUCTION, *shown, explain_names("".join(shown)), READING, write_claims(bundles, claims)]
    return {INDEX: join_parts(index), **pages}


def write_page(name: str, bundles: list[Bundle], sections: list[Section]) -> str:
    """Return the text of an experiment's page, whose bundles begin with the largest scale."""
    about = find_config("experiment", name)
    parts = [f"# {name}", WARNING, escape(describe_choice(about)) if about else ""]
    for bundle, section in zip(bundles, sections, strict=True):
        titles = [f"## {bundle.name}, scale={bundle.scale}"] * (len(bundles) > 1 or bundle.scale != "embedded")
        parts += [*titles, section.outcome, *section.visible, FOLD, *section.folded, "</details>"]
    return join_parts(parts)


def write_found(parts: list[tuple[str, list[str]]]) -> str:
    """Write what a paper's own page begins with: what was found, and what can be compared with print.

    ``parts``: of each experiment the row of what was found, and its sections' fronts.
    """
    rows, fronts = zip(*parts, strict=True)
    table = FOUND_HEADER + "\n".join(rows)
    setting = f"**No row of this table is the paper's own setting.** {explain_names(table)}"
    return join_parts(["## What we found", table, setting, *itertools.chain.from_iterable(fronts)])


def explain_names(table: str) -> str:
    """Explain the scales, encoders and settings that a table names."""
    return " ".join(note for name, note in NAMES.items() if name in table)


def join_parts(parts: list[str]) -> str:
    """Join the parts of a page that are not empty, each a paragraph of its own."""
    return "\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"


def describe_scales(bundles: list[Bundle]) -> str:
    """Say at which scales bundles have how many runs, with which encoders."""
    phrases = []
    for bundle in bundles:
        encoders = dict.fromkeys(format_encoder_name(cfg.encoder) for cfg, _ in bundle.plan.runs)
        runs = bundle.count_runs() if bundle.has_runs else "no training"
        place = f"{bundle.scale}, {bundle.name}" if bundle.is_extra else bundle.scale
        phrases.append(f"{place}: {runs}, {name_some(list(encoders))}")
    return escape("; ".join(phrases))


def shorten(found: str) -> str:
    """Write what was found in one line of a table: its first three sentences."""
    return " ".join(re.split(r"(?<=[.]) (?=[A-Z])", " ".join(found.split()))[:3])


def write_claims(bundles: list[Bundle], claims: list[dict[str, Any]]) -> str:
    """Say how the papers' claims were judged, and list those whose experiment has no bundle."""
    counts = []
    for scale in SCALES:
        names = {bundle.name for bundle in bundles if bundle.scale == scale}
        if own := [claim for claim in claims if claim["bundle"] in names]:
            where = f", {OUTSIDE}" if all(map(is_outside, own)) else ""
            counts.append(f"- scale={scale}{where}: {count_outcomes(own)}.")
    rest = [claim for claim in claims if not claim["bundle"]]
    parts = [
        CLAIMS_TEXT.strip(),
        "\n".join(counts),
        *(["Of experiments without a bundle:", list_claims(rest)] if rest else []),
    ]
    return "\n\n".join(parts)


def count_outcomes(claims: list[dict[str, Any]]) -> str:
    """Count claims by their outcome, in words."""
    counts = Counter(claim["outcome"] for claim in claims)
    return ", ".join(f"{number} {word}" for word, number in counts.most_common())


def is_outside(claim: dict[str, Any]) -> bool:
    """True if a claim was judged at the embedded scale, and not in its paper's own setting."""
    return claim["scale_name"] == "embedded" and (bool(claim["scale"]) or claim["outcome"] in (NOT_RUN, UNKNOWN))


def list_claims(claims: list[dict[str, Any]]) -> str:
    """Write each claim with its outcome, its criterion, and the numbers that decide or the command to run."""
    texts = [{key: escape(str(value)) for key, value in claim.items()} for claim in claims]
    return "\n".join(
        f"- **{text['outcome'].capitalize()}.** {text['paper']}: {text['claim']}. *Criterion*: {text['criterion']}. "
        f"*Numbers*: {text['numbers']}."
        for text in texts
    )


def write_section(bundle: Bundle, claims: list[dict[str, Any]]) -> Section:
    """Write what came out of a bundle, its claims, tables and figures, and commands in a fold."""
    commands = "\n".join(f"    {command}" for command in bundle.plan.commands)
    folded = [f"{bundle.describe_runs()} {bundle.describe_origin()}", commands]
    outside = [claim for claim in claims if is_outside(claim)]
    inside = [claim for claim in claims if claim not in outside]
    front, gains = [], list[Gain]()
    shown = show_analysis(bundle) if bundle.has_analysis else Shown()
    tables = [format_table(table) for table in shown.tables if table.row_count <= LONGEST_TABLE]
    if (bundle.path / ANALYSIS_FOLDER / "slopes.parquet").is_file():
        rows = read_stored_rows(bundle.path / ANALYSIS_FOLDER, ["slopes", "correlations", "verdicts"])
        sentences = describe_outcome(**rows)
        outcome = " ".join(f"{re.split('[.:](?: |$)', sentence)[0]}." for sentence in sentences[:2])
        folded += sentences
    elif outcome := list_verdicts(shown):
        folded += map(escape, shown.notes)
    elif bundle.has_analysis:
        outcome = f"Claims, {OUTSIDE}: {count_outcomes(outside)}." if outside else escape(" ".join(shown.notes[1:2]))
        folded += [] if claims else map(escape, shown.notes)
    else:
        report = bundle.build_report()
        verdict = escape_markdown(report.verdict)
        outcome, *collapses = verdict.partition("Left out")  # where, is in its parentheses
        outcome = re.sub(r" \((?:[^()]|\([^()]*\))*\)", "", outcome) + "".join(collapses)
        folded += [verdict]
        view = report.views[0]
        cells = [["encoder", "method", *view.columns, "training time"], *list_rows(view)]
        table = write_table([[escape_markdown(text) for text in row] for row in cells])
        tables = [f"*{escape(view.title)}{'. In square brackets: print' * ('[' in table)}*", table]
        if bundle.scale != "embedded" and not bundle.is_extra:
            gains, (beside_print, comparable) = list_gains(report), write_beside_print(report)
            tables = [write_gains(gains), *tables, beside_print]
            about = "Cells that can be compared with print; the linked pages have all." * bool(comparable)
            front = [draw_picture(bundle, gains), tables[0], about, comparable]
            outcome = f"With {bundle.count_runs()}: {describe_gains(gains)}" if gains else outcome
    phrases = itertools.chain.from_iterable(claim["scale"].split("; ") for claim in inside if claim["scale"])
    differences = escape("; ".join(dict.fromkeys(phrases)))
    visible = [
        NOTES.get(bundle.name, ""),
        f"Not the paper's setting: {differences}." * bool(differences),
        *tables,
    ]
    for figure in sorted(FIGURES.glob(f"{bundle.name}-*.svg")):
        name = figure.stem.removeprefix(f"{bundle.name}-")
        caption = re.sub(r"^figure(\d+)$", r"Like Figure \1 of the paper", name)
        visible.append(f"![{caption}](../figures/{figure.name})\n\n*{caption}*")
    visible.append(list_claims(inside))
    if outside:
        lines = (f"- {claim['outcome'].capitalize()}: {escape(claim['claim'])}" for claim in outside)
        folded += [f"Claims, {OUTSIDE}:", "\n".join(lines)]
    return Section(outcome, visible, folded, front, gains)


def draw_picture(bundle: Bundle, gains: Sequence[Gain]) -> str:
    """Draw a bundle's gains beside print's, and return how the paper's own page shows them; empty without any."""
    picture = FIGURES / f"{bundle.name}-gains.svg"
    picture.unlink(missing_ok=True)
    if gains:
        with use_figure_style():
            draw_gains(gains).savefig(picture, metadata={"Date": None})
    return f"![gains](../../docs/figures/{picture.name})" * bool(gains)


def format_table(table: Table) -> str:
    """Write an analysis' table as Markdown."""
    columns = [[column.header, *column.cells] for column in table.columns]
    rows = [
        [escape(" ".join(Text.from_markup(str(cell)).plain.split())) for cell in row]
        for row in zip(*columns, strict=True)
    ]
    return f"*{escape(str(table.title))}*\n\n{write_table(rows)}"


def write_table(rows: list[list[str]]) -> str:
    """Write rows as a table in Markdown; the first is its head."""
    head, *rest = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, "|" + " --- |" * len(rows[0]), *rest])


def judge_claims(bundles: list[Bundle]) -> list[dict[str, Any]]:
    """Judge the claims of each bundle's experiment by this bundle alone, and the others by none.

    Returns:
        A row for each claim and bundle: that of `isobench report --claims all`, the bundle's name (empty: none) and
        its scale.
    """
    claimed = {claim.experiment for claim in load_claims()}
    bundles = [bundle for bundle in bundles if bundle.experiment in claimed and not bundle.is_extra]
    judged, rows = [], []
    for group in group_bundles(bundles):
        rows = judge_together(group)
        for bundle in group:
            about = {"bundle": bundle.name, "scale_name": bundle.scale}
            judged += [row | about for row in rows if row["experiment"] == bundle.experiment]
    names = {bundle.experiment for bundle in bundles}
    return judged + [row | {"bundle": "", "scale_name": ""} for row in rows if row["experiment"] not in names]


def group_bundles(bundles: list[Bundle]) -> list[list[Bundle]]:
    """Group bundles so that no group has two of one experiment."""
    groups: list[dict[str, Bundle]] = []
    for bundle in bundles:
        group = next((group for group in groups if bundle.experiment not in group), None)
        if group is None:
            groups.append(group := {})
        group[bundle.experiment] = bundle
    return [list(group.values()) for group in groups]


def judge_together(bundles: list[Bundle]) -> list[dict[str, Any]]:
    """Import bundles into a temporary output folder, and judge all claims there: a row for each."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    trained = [bundle.experiment for bundle in bundles if bundle.has_runs and bundle.has_analysis]
    commands = [["import", *(str(bundle.path) for bundle in bundles)]]
    commands += [*(["report", f"+experiment={name}"] for name in trained), ["report", "--claims", "all"]]
    with tempfile.TemporaryDirectory() as folder:
        for command in commands:
            program = [sys.executable, "-m", "isobench", *command, f"output_dir={folder}"]
            subprocess.run(program, check=True, stdout=subprocess.DEVNULL, cwd=ROOT, env=environment)
        return pyarrow.parquet.read_table(Path(folder, "reports", "claims.parquet")).to_pylist()


def escape(text: str) -> str:
    """Write a text so that Markdown shows it as it is, also in a cell of a table.

    An underscore within a word needs no backslash, and commands are easier to copy without.
    """
    return re.sub(r"([\\`*\[\]<>|])", r"\\\1", text)


if __name__ == "__main__":
    main()
