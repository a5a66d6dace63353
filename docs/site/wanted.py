"""Write docs/wanted.md: the runs at the papers' scale that nobody has made, their cost, and how to publish them."""

import math
import re
from pathlib import Path
from typing import Any

from isobench.analyses.rows import needs_training
from isobench.papers.description import PROGRAM, read_paper
from isobench.papers.folders import find_config, find_papers, read_config_file
from isobench.papers.published import load_tables

ROOT = Path(__file__).resolve().parents[2]
WANTED = ROOT / "docs" / "wanted.md"
COSTS = ROOT / "docs" / "how-to" / "memory.md"  # the page with the papers' GPU-hours and GiB
WANTED_TEXT = """# Wanted: runs at the papers' scale

<!-- docs/site/wanted.py writes this page from the papers' paper.yaml and docs/how-to/memory.md. -->

Nobody has run these commands. They need the Hugging Face hub; those that train need a GPU too, but for the small ones
at the end. A bundle of yours becomes part of the [results](results.md), with your machine and commit.

1.  Take a clean checkout (`git status` shows no change), so that the records name a commit that others have.
2.  Give a command below. With `dry_run=true` it lists its runs and trains nothing. It goes on where it was stopped.
    `hydra/launcher=slurm hydra.launcher.partition=NAME` submits it.
3.  Export the runs that have ended, and check the bundle: `isobench verify NAME_paper`.
4.  Open a pull request that adds the bundle as `experiments/PAPER/results/NAME_paper`.

A part is welcome too. Name tasks, encoders or methods, such as `task=rte encoder=bert-base-cased`, in both commands.
Bundles of several people merge.

The review is `isobench verify BUNDLE --level 2`, then `--retrain 2` on a machine with the hub and a GPU, and
`isobench import BUNDLE` into an empty folder. A bundle has the names of your machine and folders, unless `isobench
export` gets `--anonymous`; the kinds of its GPUs and processor stay.

GPU-hours are rough, of the whole grid on one card. Those of isotropy calibration's Tables 2, 3 and 5 are the paper's
own minutes. The others are of `trainer.precision=bf16-mixed`; in 32 bits, the commands' default, they are more than
twice as many. GiB are those of the largest run in 32 bits. [Memory and cost](how-to/memory.md) says how they are
counted. In a command, `FOLDER` has the data that the paper's page names. I-STAR's 210 runs are not listed, because
their cost is not estimated: `+experiment=glue_istar scale=paper`.

| paper, tables and figures | cells in these tables | runs | GPU-hours | GiB |
|---|---|---|---|---|
"""

# With which settings scale=laptop has an encoder of a paper's, and which of print's rows they are, each a command.
LAPTOP_ENCODERS = [
    ("isobn, Table 1: BERT on RTE, CoLA, MRPC, STS-B", "glue_isobn", "encoder=bert-base-cased"),
    ("isobn, Table 2, Figure 7: BERT", "isobn_ev", "encoder=bert-base-cased encoder.pooling=pooler"),
    ("isobn, Figures 2, 3: BERT", "isobn_drift", "encoder=bert-base-cased encoder.pooling=pooler"),
    ("isotropy_calibration, Tables 1, 4: BERT on five tasks", "glue_calibration", "encoder=bert-base-cased"),
    ("isotropy_calibration, Tables 1, 4: DistilBERT on them", "glue_calibration", "encoder=distilbert-base-cased"),
    ("task_adaptation, Table 1: BERT-base on RTE, MRPC", "glue_adaptation", "encoder=bert-base-uncased"),
    ("task_adaptation, Figures 1 to 3", "adaptation_embeddings", "encoder=bert-base-uncased encoder.pooling=pooler"),
]  # fmt: skip
TOKENS = {"cola": 98_000, "stsb": 167_000, "wnli": 24_000, "mrpc": 201_000, "rte": 169_000}  # task -> of an epoch
SIZES = {"distilbert-base-cased": (66e6, 400)}  # encoder -> its parameters, and tokens per second on a core
BERT = (110e6, 200)
LAPTOP_TEXT = """## Small: a paper's own encoder at laptop scale

`scale=laptop` is close to a paper's protocol, on its small tasks and with another encoder; `laptop.md` in a paper's
folder lists the differences, and says what such runs can show. With the hub, the commands below have the paper's
encoder: their runs of the paper's methods are runs of `scale=paper` too. Of `glue_isobn`'s grid, 6 configurations for
plain and 18 for IsoBN, they have one each.

Hours are those of training all epochs of all runs. GPU-hours count 6 operations per token and parameter at 40
TFLOP/s, with `trainer.precision=bf16-mixed`; in 32 bits they are more than twice as many. Such short runs don't keep
a GPU busy, and may take several times as long. Core-hours are of a free core with AVX-512, in 32 bits. DistilBERT
takes 400 tokens per second, as the slowest of the three fastest of our 60 runs of
[glue_calibration](results/glue_calibration.md). For BERT, with twice the layers, we assume 200. Shared cores take
longer; early stopping, of glue_isobn and glue_adaptation, ends sooner.

| rows in print | settings beside `scale=laptop` | runs | GPU-hours | core-hours |
|---|---|---|---|---|
"""


def write_wanted() -> str:
    """Return the page of the commands at the papers' scale: what each makes and costs, and how to export its runs."""
    makes: dict[str, dict[str, list[str]]] = {}  # command -> paper -> its tables and figures
    for name, folder in find_papers().items():
        for title, shown in read_paper(folder).shows.items():
            if command := shown.list_commands().get("paper"):
                makes.setdefault(command, {}).setdefault(name, []).append(title)
    costs, rows, sections = read_costs(), [], []
    for command, titles in makes.items():
        experiment = re.sub(r".*\+experiment=(\w+).*", r"\1", command)
        config = read_config_file(find_config("experiment", experiment))
        cost = ["-" if needs_training(config.get("analysis", {"trains": True})) else "trains nothing", "-", "-"]
        cost = [known or own for known, own in zip(costs.get(experiment, [""] * 3), cost, strict=True)]
        hours = config["experiment"].get("gpu_hours")
        assert hours is None or f"{hours:g}" == cost[1], f"{COSTS} has other GPU-hours than {experiment}"
        what = "; ".join(f"{name}: {', '.join(own)}" for name, own in titles.items())
        rows.append(f"| {what} | {count_cells(titles) or '-'} | {' | '.join(cost)} |")
        export = f"isobench export {command} --to {experiment}_paper --license CC-BY-4.0"
        sections.append(f"## {what}\n\n    {PROGRAM} {command}\n    {export}")
    return "\n\n".join([WANTED_TEXT + "\n".join(rows), *sections, *write_laptop_wanted()]) + "\n"


def write_laptop_wanted() -> list[str]:
    """Write what laptop scale lacks: runs of the papers' own encoders."""
    rows, commands = [], []
    for printed, experiment, settings in LAPTOP_ENCODERS:
        config = read_config_file(find_config("experiment", experiment))
        encoder = re.sub(r"encoder=(\S+).*", r"\1", settings)
        trains = needs_training(config.get("analysis", {"trains": True}))
        cost = estimate_laptop_cost(config, encoder) if trains else "trains nothing | - | -"
        rows.append(f"| {printed} | `+experiment={experiment} {settings}` | {cost} |")
        command = f"+experiment={experiment} scale=laptop {settings}"
        target = f"--to {experiment}_{encoder} --license CC-BY-4.0"
        commands.append(f"    {PROGRAM} {command}\n    isobench export {command} {target}")
    return [LAPTOP_TEXT + "\n".join(rows), "\n\n".join(commands)]


def estimate_laptop_cost(config: dict[str, Any], encoder: str) -> str:
    """Return the cells of an experiment's runs, GPU-hours and core-hours at laptop scale, with an encoder."""
    choices = (part.get("override /optimization") for part in config.get("defaults", []))
    optimization = find_config("optimization", next(filter(None, choices), "isobn_paper"))
    usual = read_config_file(optimization)["optimization"]["epochs"]
    runs, tokens = 0, 0
    for sub_grid in config["experiment"]["grid"]["laptop"]:
        others = math.prod(len(values) for name, values in sub_grid.items() if name not in ("task", "encoder"))
        (epochs,) = sub_grid.get("optimization.epochs", [usual])
        runs += len(sub_grid["task"]) * others
        tokens += sum(TOKENS[task] for task in sub_grid["task"]) * others * epochs
    parameters, speed = SIZES.get(encoder, BERT)
    return f"{runs} | {6 * parameters * tokens / 40e12 / 3600:.1f} | {tokens / speed / 3600:.0f}"


def count_cells(titles: dict[str, list[str]]) -> int:
    """Count the cells of papers' tables of which we have the printed numbers.

    ``titles``: paper -> its tables, some with the encoders that they are of, such as "Table 1, BERT-base".
    """
    count = 0
    for paper, own in titles.items():
        for number, family in re.findall(r"^Table (\d+)(?:, (\S+))?", "\n".join(own), re.MULTILINE):
            encoders = load_tables(paper)[f"table{number}"].cells
            rows = [row for name in encoders if name.startswith(family.lower()) for row in encoders[name].values()]
            count += sum(map(len, rows))
    return count


def read_costs() -> dict[str, list[str]]:
    """Read the page of memory and cost: experiment -> its runs, GPU-hours and GiB, each empty if it is not there."""
    costs: dict[str, list[str]] = {}
    experiments: list[str] = []
    for line in COSTS.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 8 and re.fullmatch(r"[\d.]+", cells[5]):  # one encoder's memory
            experiments = cells[0].split(", ") if cells[0] else experiments
            for cost in (costs.setdefault(name, ["", "", ""]) for name in experiments):
                cost[2] = max(cost[2], cells[5], key=lambda text: float(text or 0))
        elif len(cells) == 4 and (found := re.search(r"\+experiment=(\w+)", cells[1])):
            costs.setdefault(found[1], ["", "", ""])[:2] = cells[2:]
    return costs
