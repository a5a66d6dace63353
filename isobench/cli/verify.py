"""Check bundles or output folders, and name what holds and what does not.

Level 1 compares checksums, and computes keys, scores and the rows of analyses of trained runs again. Level 2 also
compares data, weights, code and machine with the records. --retrain trains N finished runs of each folder again,
drawn at random; failed runs are never drawn. No code that a folder's files name is run. Say with data.root,
data.cache and encoder.path where data and weights are here. The exit code is 1 if anything fails.

Example: isobench verify bundle
"""

import argparse
import json
from pathlib import Path
from statistics import fmean
from typing import Any

from isobench.cli.command import CommandParser, run_guarded, split_folders
from isobench.common.environment import collect_garbage_rarely
from isobench.common.errors import UserError, suggest_nearest
from isobench.common.terminal import make_console, make_table
from isobench.config.bounds import PositiveInt, check_value
from isobench.verification.folder import CHECKS, DIFFERS, FAILS, OUTCOMES, UNCHECKED, Outcomes

SETTINGS = ("data.root", "data.cache", "encoder.path")


def main() -> None:
    settings = "[data.root=FOLDER] [data.cache=FOLDER] [encoder.path=FOLDER ...]"
    parser = CommandParser("isobench verify", __doc__, settings, page="verify")
    add = parser.add_argument
    add("arguments", metavar="FOLDER", nargs="+", help="a bundle or output folder; ./a=b if it has a =")
    add("--level", type=int, choices=(1, 2), default=1, help="1 (default), or 2: data, weights, code")
    add("--recompute", action="store_true", help="also compute the rows of analyses again that train nothing")
    add("--retrain", type=int, metavar="N", help="train N finished runs of each folder again")
    add("--seed", type=int, default=0, help="seed of the random choice of these runs (0)")
    add("--trust", action="store_true", help="use the paths and run the classes that the folders' configs name")
    add("--json", action="store_true", help="print everything as JSON")
    options = parser.parse_intermixed_args()  # settings may stand after flags
    run_guarded(lambda: print_outcome(options))


@collect_garbage_rarely()
def print_outcome(typed: argparse.Namespace) -> None:
    """Verify each folder and print the outcome; a folder that can't be verified doesn't stop the others."""
    from isobench.verification.reproduction import Options
    from isobench.verification.verify import verify

    folders, settings = split_folders(typed.arguments)
    if not folders:
        raise UserError("name the bundle or output folder to verify: isobench verify FOLDER (./a=b if it has a =)")
    check_value("--retrain", typed.retrain, PositiveInt | None)
    locations = _read_locations(settings)
    options = Options(typed.level, typed.recompute, typed.retrain or 0, typed.seed, **locations, trust=typed.trust)
    verified: dict[Path, Outcomes] = {}
    problems: dict[Path, str] = {}
    for folder in folders:
        try:
            verified[folder] = verify(folder, options)
        except UserError as error:
            problems[folder] = str(error)
        else:
            if not typed.json:
                _print_outcomes(verified[folder], folder)
    failed = ", ".join(str(folder) for folder, outcomes in verified.items() if outcomes.has_failed)
    if typed.json:
        told = [{"folder": str(folder), **outcomes.to_json()} for folder, outcomes in verified.items()]
        told += [{"folder": str(folder), "error": problem} for folder, problem in problems.items()]
        print(json.dumps(told, indent=1))
    elif len(folders) > 1:
        outcome = f"These fail: {failed}" if failed else "Nothing that was checked fails."
        print(f"{len(verified)} of {len(folders)} folders checked. {outcome}")
    if failed:
        raise SystemExit(1)
    if problems:
        raise UserError("; ".join(problems.values()))
    if typed.retrain:
        reasons = {folder: outcomes.find_untrained() for folder, outcomes in verified.items()}
        if all(reasons.values()):
            untrained = "; ".join(f"{folder}: {reason}" for folder, reason in reasons.items())
            raise UserError(f"no run can be trained again: {untrained}")


def _read_locations(settings: list[str]) -> dict[str, Any]:
    """Read where the user says that data and weights are, by the names of ``Options``."""
    values: dict[str, list[str]] = {name: [] for name in SETTINGS}
    for text in settings:
        name, _, value = text.partition("=")
        if name not in SETTINGS or not value:
            hint = suggest_nearest(name, SETTINGS)
            raise UserError(f"{text} is no setting of verify, written NAME=FOLDER: {hint}; a folder is ./a=b")
        if name != "data.cache" and not Path(value).expanduser().is_dir():
            raise UserError(f"{text}: {value} is no folder")
        if values[name] and name != "encoder.path":
            raise UserError(f"{name} is given twice: name one folder")
        values[name].append(str(Path(value).expanduser()))
    root, cache = (values[name][0] if values[name] else None for name in ("data.root", "data.cache"))
    return {"root": root, "encoders": tuple(values["encoder.path"]), "cache": cache}


def _print_outcomes(outcomes: Outcomes, folder: Path) -> None:
    """Print a line for each failure, one for each kind of difference and of what was not checked, and the counts."""
    for entry in outcomes.list_entries(FAILS):
        print(f"{entry.subject}  {entry.check}: {entry.text}".replace("\n", "?"))
    for outcome in (DIFFERS, UNCHECKED):
        subjects: dict[tuple[str, str], list[str]] = {}
        for entry in outcomes.list_entries(outcome):
            subjects.setdefault((entry.check, entry.text), []).append(entry.subject)
        for (check, text), names in subjects.items():
            where = f"{len(names)} times" if len(names) > 1 else names[0]
            print(f"{outcome}: {check}: {text} ({where})".replace("\n", "?"))
    _print_scores(outcomes)
    table = make_table(f"Verified: {folder}", ("check", "what was checked"), OUTCOMES)
    for check, counts in outcomes.count().items():
        table.add_row(check, CHECKS[check], *(str(counts[outcome] or "-") for outcome in OUTCOMES))
    make_console().print(table)
    failed = {entry.subject for entry in outcomes.list_entries(FAILS)}
    print(f"{len(failed)} of its runs and files fail." if failed else "Nothing that was checked fails.")


def _print_scores(outcomes: Outcomes) -> None:
    """Print a row for each task, encoder and method: the mean score that predictions give, and the recorded one."""
    groups: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    for task, encoder, method, computed, recorded in outcomes.scores:
        groups.setdefault((task, encoder, method), []).append((computed, recorded))
    if not groups:
        return
    title = "Means over all runs, whatever their settings"
    table = make_table(title, ("task", "encoder", "method"), ("runs", "from predictions", "recorded"))
    for names, pairs in sorted(groups.items()):
        means = [f"{100 * fmean(values):.2f}" for values in zip(*pairs, strict=True)]
        table.add_row(*names, str(len(pairs)), *means)
    make_console().print(table)
