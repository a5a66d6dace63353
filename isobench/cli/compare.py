"""Compare results of MTEB or lm-evaluation-harness: differences, intervals, tests, and what is missing for more.

BASE and OTHER are each a result file or a folder of them; each OTHER is compared with BASE. --ranking compares the
neighbours in a ranking instead: its CSV has a row for each model and a column for each task.

Example: isobench compare results/all-MiniLM-L6-v2 results/all-mpnet-base-v2
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from isobench.cli.command import CommandParser, run_guarded
from isobench.common.files import replace_non_finite
from isobench.common.terminal import make_console, name_some


def main() -> None:
    parser = CommandParser("isobench compare", __doc__, page="compare")
    parser.add_argument("results", nargs="*", type=Path, metavar="BASE OTHER", help="result files or folders of them")
    parser.add_argument("--metric", metavar="NAME", help="compare this metric instead of the main score")
    parser.add_argument("--ranking", metavar="FILE.csv", type=Path, help="compare the neighbours in a ranking")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    if options.ranking and (options.results or options.metric):
        parser.error("--ranking FILE.csv takes no results and no --metric")
    elif options.ranking:
        run_guarded(lambda: _compare_neighbours(options.ranking, options.json))
    elif len(options.results) < 2:
        parser.error("name two results or more: BASE OTHER")
    else:
        run_guarded(lambda: _compare_results(options.results, options.metric, options.json))


def _compare_results(paths: Sequence[Path], metric: str | None, as_json: bool) -> None:
    from isobench.report.others import compare_results, describe_tests, list_notes, read_results

    base, *others = (read_results(path, metric) for path in paths)
    outcomes = [compare_results(base, other) for other in others]
    on_tasks = iter(describe_tests([pair for outcome in outcomes for pair in outcome.tasks]))
    over_tasks = describe_tests([outcome.overall for outcome in outcomes])
    comparisons: list[dict[str, Any]] = [
        {
            "base": str(paths[0]),
            "other": str(path),
            "tasks": [next(on_tasks) for _ in outcome.tasks],
            "overall": overall,
            "left_out": outcome.left_out,
            "notes": list_notes(outcome),
        }
        for path, outcome, overall in zip(paths[1:], outcomes, over_tasks, strict=True)
    ]
    if as_json:
        print(json.dumps(replace_non_finite(comparisons), indent=1))
        return
    for comparison in comparisons:
        print(f"{comparison['other']} less {comparison['base']}")
        _print_rows([*comparison["tasks"], comparison["overall"]])
        for note in comparison["notes"]:
            print(f"- {note}")


def _compare_neighbours(file: Path, as_json: bool) -> None:
    from isobench.report.others import describe_tests, rank_models
    from isobench.statistics.seeds import ALPHA

    leads, left_out = rank_models(file)
    rows = describe_tests(leads)
    counts = {name: sum(row[name] < ALPHA for row in rows) for name in ("p", "p_holm")}
    if as_json:
        print(json.dumps(replace_non_finite({"neighbours": rows, "differ": counts, "left_out": left_out}), indent=1))
        return
    _print_rows(rows)
    pairs = f"{len(rows)} pairs of neighbours in rank"
    print(
        f"Of {pairs}, {counts['p']} differ at p < {ALPHA}, {counts['p_holm']} after Holm's correction over the pairs."
    )
    if equal := sum(math.isnan(row["p"]) for row in rows):
        print(f"{equal} have no p: their difference is the same on every task.")
    if left_out:
        print(f"Left out, because a score is missing: {name_some(left_out)}.")


def _print_rows(rows: Sequence[dict[str, Any]]) -> None:
    """Print a table of tests: scores in points, x 100, if all of them lie within -1 and 1."""
    from isobench.report.wording import format_interval, format_number, format_p_value

    scale = 100 if all(max(abs(row["base"]), abs(row["other"])) <= 1 for row in rows) else 1
    names = ("name", "base", "other", "difference [95%]", "p", "Holm", "exact", "detectable", "test over")
    table = Table(box=SIMPLE_HEAD, header_style="bold", caption="x 100" if scale == 100 else None)
    for name in names:
        table.add_column(name, overflow="fold", justify="left" if name in ("name", "test over") else "right")
    for row in rows:
        points = {name: row[name] * scale for name in ("base", "other", "value", "low", "high", "detectable")}
        table.add_row(
            row["name"],
            *(f"{points[name]:.2f}" for name in ("base", "other")),
            format_interval(*(points[name] for name in ("value", "low", "high"))),
            *(format_p_value(row[name]) for name in ("p", "p_holm", "p_exact")),
            format_number(points["detectable"]),
            row["test_over"],
        )
    make_console().print(table)
