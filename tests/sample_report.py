"""Reports as they may come, made up: complete, partial, empty, hostile."""

import random
import statistics

import numpy as np

from isobench.report.baseline_comparison import apply_holm_correction, compare
from isobench.report.document import Cell, Comparison, ConfigurationLine, Report, ReportLine, ReportTable
from isobench.report.method_effects import measure_effects
from isobench.report.overview import build_overview
from isobench.report.verdict import write_verdict

ENCODERS = ["bert-base-cased", "roberta-base"]
METHODS = ["none", "cosine", "spectrum_polynomial", "spectrum_exponential", "flow"]
LOW, HIGH = [80.0, 80.5, 81.0, 80.2, 80.8], [85.0, 85.5, 86.0, 85.2, 85.8]
TASKS = ["sst2", "mrpc", "cola", "rte", "wnli", "stsb", "qnli", "mnli", "qqp"]


def sample(encoders=ENCODERS, methods=METHODS, tasks=TASKS, seeds=3, epochs=4, scale=("encoder is not the paper's",)):
    """A complete report of numbers that follow a seeded generator."""
    rng = random.Random(0)
    runs, curves = [], []
    for encoder in encoders:
        for method in methods:
            for task in tasks:
                for seed in range(1, seeds + 1):
                    run, epoch_rows = made_up_run(rng, encoder, method, task, seed, epochs)
                    runs.append(run)
                    curves += epoch_rows
    tables = [table(runs, encoders, methods, tasks)]
    effects = measure_effects(tables)
    overview = build_overview(tables, effects, runs, {})
    return Report(
        experiment="glue_calibration", paper="On Isotropy Calibration of Transformers", tables=tables, runs=runs,
        verdict=write_verdict(effects, overview, len(runs), len(runs)), overview=overview,
        epochs={name: [row[name] for row in curves] for name in curves[0]},
        selection="The best epoch on the dev set, the set it is reported on.",
        state={"done": len(runs), "failed": 0, "missing": 0}, scale=list(scale),
        evidence=["Three seeds can't show a difference below two points.", "No method beats plain fine-tuning."],
        failures=["cola flow seed 2: diverged in epoch 2"],
        provenance={"isobench": "0.1.0", "torch": "2.13.0", "sha256 of the data": "ab" * 32, "started": "2026-01-01"},
        notes=["Times were measured on a shared machine."],
    )  # fmt: skip


def made_up_run(rng, encoder, method, task, seed, epochs):
    level = 70 + 2 * TASKS.index(task) if task in TASKS else 80
    strength = METHODS.index(method) if method in METHODS else 1
    identity = {"encoder": encoder, "method": method, "task": task, "seed": seed}
    key = "-".join(map(str, identity.values()))
    rows = []
    for epoch in range(1, epochs + 1):
        isotropy = 0.2 + 0.1 * strength + 0.02 * epoch + rng.gauss(0, 0.02)
        ev = max(0.02, 0.8 - isotropy + rng.gauss(0, 0.02))
        rows.append({
            "epoch": epoch, "key": key, **identity, "score": level + 3 * (1 - 0.5**epoch) + rng.gauss(0, 0.8),
            "embedding/ev1": ev, "embedding/ev2": ev + 0.1, "embedding/ev3": ev + 0.15,
            "embedding/i1": isotropy, "embedding/i2": 1 - isotropy, "embedding/isoscore": isotropy / 3,
            "head/i1": 10 ** -(5 - strength + rng.random()), "head/i2": 0.5 + rng.gauss(0, 0.05),
        })  # fmt: skip
    best = max(rows, key=lambda row: row["score"])
    seconds = epochs * (10 + 3 * strength + rng.random())
    run = {
        **best, "status": "done", "failure": None, "epochs": epochs, "seconds": seconds + 5,
        "training_seconds": seconds, "peak_memory_mib": 1500.0 + 120 * strength, "scale": "paper", "attempts": 1,
    }  # fmt: skip
    return run, rows


def table(runs, encoders, methods, tasks):
    rng = random.Random(1)
    verdicts = [("within", "within one published deviation"), ("above", "more than one published deviation above"),
                ("below", "more than one published deviation below"),
                ("not comparable", "another encoder than the paper's")]  # fmt: skip
    lines = []
    for encoder in encoders:
        for method in methods:
            cells = {}
            for task in tasks:
                own = [r for r in runs if (r["encoder"], r["method"], r["task"]) == (encoder, method, task)]
                verdict, why = verdicts[len(lines) % 4 if task != "sst2" else 0]
                cells[task.upper()] = cell(own, rng, method, verdict, why)
            lines.append(ReportLine(encoder, method, cells, "-" if method == "none" else f"{1 + rng.random():.2f}x"))
    notes = ["Of 72 comparisons 3.6 are expected by chance; 2 survive Holm."]
    columns = [task.upper() for task in tasks]
    return ReportTable(
        "table1",
        "Table 1: GLUE dev sets",
        columns,
        lines,
        notes,
        dict(zip(columns, tasks, strict=True)),
        scores=columns,
    )


def cell(runs, rng, method, verdict, why):
    values = [run["score"] for run in runs]
    mean = statistics.fmean(values)
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    p = rng.random() ** 3
    comparison = None
    if method != "none" and len(values) > 1:
        difference = rng.gauss(0, 1)
        comparison = Comparison(difference, p, 0.1, min(1.0, 20 * p), difference, difference - 1.5, difference + 1.5)
    return Cell(
        values=values, seeds=[run["seed"] for run in runs], ours=f"{mean:.2f}{spread}",
        published=f"{mean + rng.gauss(0, 1):.2f} ± 0.80", published_of=runs[0]["encoder"], verdict=verdict, why=why,
        troubles={"constant_predictor": 1} if method == "flow" else {}, comparison=comparison,
    )  # fmt: skip


def compared_table(arms, tasks=None, troubles=None, encoder="bert", name="table1") -> ReportTable:
    """Build a table from scores, with comparisons with plain fine-tuning as the report makes them.

    ``arms``: method -> column -> scores; ``troubles``: (method, column) -> what went wrong -> number of runs.
    """
    lines = []
    for method, columns in arms.items():
        cells = {}
        for column, values in columns.items():
            base = arms.get("none", {}).get(column, []) if method != "none" else []
            found = (troubles or {}).get((method, column), {})
            cells[column] = Cell(
                values, list(range(len(values))), troubles=found, published="99.99 (0.01)",
                comparison=compare(values, base) if values and base else None,
            )  # fmt: skip
        lines.append(ReportLine(encoder, method, cells))
    titles = list(dict.fromkeys(c for a in arms.values() for c in a))
    made = ReportTable(name, "", titles, lines, tasks=tasks or {}, scores=titles)
    apply_holm_correction([made])
    return made


def noisy(mean, n, seed, sd=1.0):
    return (mean + sd * np.random.default_rng(seed).standard_normal(n)).tolist()


def empty():
    """What there is before anything has run."""
    return Report("glue_isobn", None, [], [], {}, "", {}, [], [], [], {})


def hostile():
    """Every text of it tries to be markup, and one mathematics."""
    evil = "<script>alert(1)</script>"
    breakout = '"></style><b onload=x>&amp; $x_$'
    report = sample(encoders=[breakout], methods=["none", evil], tasks=["sst2", evil], seeds=2, epochs=2)
    report.experiment = report.paper = report.selection = f"{evil}{breakout}"
    report.failures = [f"seed 1: RuntimeError: </style>{evil}"]
    report.provenance = {evil: breakout}
    report.evidence = report.notes = report.scale = [evil + breakout]
    report.state = {"done": 1, evil: 2}
    report.verdict = evil + breakout
    for line in report.overview:
        line.group = line.settings = line.time = evil + breakout
        line.troubles = {evil: 1}
    cell = Cell([1.0, 2.0], [1, 2], troubles={evil: 1})
    report.configurations = [ConfigurationLine(breakout, evil, evil, breakout, cell, 1.5, True)]
    first = report.tables[0]
    first.name = first.title = evil
    first.notes = [breakout]
    first.columns = [name.lower() for name in first.columns]
    for line in first.lines:
        line.time = evil
        line.cells = {name.lower(): cell for name, cell in line.cells.items()}
        for one in line.cells.values():
            one.ours, one.published_of, one.why, one.troubles = evil, evil, breakout, {evil: 1}
    return report
