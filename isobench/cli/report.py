"""Report on an experiment's runs: tables, statistics and an HTML page; or show the papers' claims.

Give it the sweep's own arguments; +experiment=NAME alone reports on every run of this experiment that was asked for
in the output folder. experiment.selection.rule=dev|seeds|held_out chooses among configurations. Without arguments it
lists what there is to report on. BUNDLE is a folder that isobench export wrote: its report goes into
outputs/reports/, or that of output_dir=FOLDER. PLAN is a file of OUTPUT_DIR/plans: its runs need no data.

Example: isobench report +experiment=glue_isobn
"""

import shlex
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isobench.analyses.rows import needs_training, read_claimed_rows
from isobench.analyses.runner import analyse_trained_runs, load_analysis, show_stored_analysis
from isobench.bundles.manifest import ANALYSIS_FOLDER, PLAN_FILE, find_changes, read_manifest
from isobench.cli.command import CommandParser, read_output_dir, run_guarded, split_folders
from isobench.common.environment import collect_garbage_rarely, format_paper_flags
from isobench.common.errors import NoGridError, StorageError, UserError, doing, extract_first_line, refuse
from isobench.common.files import RECORD_LIMIT, explain_output_errors, read_bounded, write_text
from isobench.common.progress import print_above_bars, track_progress
from isobench.common.terminal import format_count, make_console, print_note
from isobench.config.command_line import check_typed_settings, drop_launch_arguments, split_config_dirs
from isobench.papers.folders import advise_on_experiment, find_papers, list_configs
from isobench.papers.published import count_numbers
from isobench.runs.bundled import read_member
from isobench.runs.folder import ABOUT_FILE, RunFolder, report_folder, reports_folder, require_report_folder
from isobench.runs.grouping import find_report_folder
from isobench.runs.plan import locate_plan, parse_plan, read_plans
from isobench.runs.run import Run, check_predictions, print_troubles
from isobench.runs.state import add_states
from isobench.runs.trust import describe_changed_sources, read_own_classes
from isobench.sweep.find_runs import (
    EXPERIMENT,
    OUTPUT_DIR,
    are_general,
    count_runs,
    drop_selection,
    find_runs,
    read_selection,
    take_own_experiment,
)
from isobench.sweep.planning import compose_sweep

if TYPE_CHECKING:
    from isobench.analyses.shown import Shown
    from isobench.report.build import Report
    from isobench.report.claims import Claim, Outcome


EVERY = "all"  # as the name of a paper: every one


def main() -> None:
    settings = "[BUNDLE | PLAN | +experiment=NAME] [SETTING=VALUE ...]"
    parser = CommandParser("isobench report", __doc__, settings, page="reports")
    text = "judge each paper's claims by the paper's own printed numbers; exits with 1 if a check rejects them"
    parser.add_argument("--published", action="store_true", help=text)
    text = "say which claims of this paper hold in the runs of the output folder; all: of every paper"
    parser.add_argument("--claims", metavar="NAME", help=text)
    options, arguments = parser.parse_sweep_arguments()
    if options.published:
        run_guarded(lambda: report_published(arguments, options.claims if options.claims != EVERY else None))
    else:
        run_guarded(lambda: report(arguments, options.claims))


@collect_garbage_rarely()
def report(arguments: Sequence[str], paper: str | None = None) -> None:
    """Print an experiment's tables and comparisons, and write the report's files; without one, list what there is.

    ``paper`` names the one whose claims are judged instead, or is ``EVERY``.
    """
    bundles, settings = split_folders(split_config_dirs(arguments)[1])
    names_runs = not are_general(drop_selection(settings)) or any(text.startswith(EXPERIMENT) for text in settings)
    refuse(
        (
            paper and (bundles or names_runs),
            "--claims judges all runs of an output folder: leave out bundle and experiment",
        ),
        (len(bundles) > 1, "isobench report BUNDLE takes one folder of isobench export, and output_dir=FOLDER"),
    )
    if bundles and bundles[0].suffix == ".json" and not bundles[0].is_dir():
        _report_plan(bundles[0], settings)
        return
    if bundles:
        advice = advise_on_experiment(str(bundles[0]))
        refuse((advice and not bundles[0].exists(), str(advice)))
        output_dir = read_output_dir(drop_launch_arguments(settings), "isobench report BUNDLE")
        _report_bundle(bundles[0], output_dir, split_config_dirs(arguments)[0])
        return
    check_typed_settings(arguments)
    if paper:
        _report_claims(list(arguments), paper if paper != EVERY else None)
        return
    if not names_runs:
        _list_reports(list(arguments))
        return
    _, runs = find_runs(drop_selection(arguments))
    runs = take_own_experiment(runs, arguments)
    cfg = runs[0].cfg
    if cfg.analysis and not needs_training(cfg.analysis):
        folder = report_folder(cfg.output_dir, cfg.experiment.name)
        show_stored_analysis(folder, cfg.analysis, folder).print_to(make_console())
        print(f"Rows and figures: {folder}/")
        return
    runs = _require_records(runs, f"{cfg.output_dir}: isobench report output_dir={cfg.output_dir} lists what has")
    shown, notes = repeat_analysis(runs) if cfg.analysis else (None, [])
    folders = [Path(folder) for folder in split_config_dirs(arguments)[0]]
    notes += describe_changed_sources(runs, read_own_classes(folders).values())
    _show_report(runs, find_report_folder(runs), shown, notes)


def _list_reports(arguments: list[str]) -> None:
    """List what an output folder has runs or an analysis of, a line each, with the command that reports on it."""
    with compose_sweep(arguments) as (_, base, _):
        output_dir = str(base.output_dir)
    flags = [*format_paper_flags(), *arguments]
    counts = count_runs(output_dir)
    found = {shlex.join([f"{EXPERIMENT}{name}", *flags]): count for name, count in counts.items()}
    for plan in read_plans(output_dir):
        if plan.experiment is None:
            imported = locate_plan(output_dir, plan, is_imported=True)  # its command may need data that are not here
            typed = [str(imported)]
            if plan.commands and not imported.exists():  # they begin with python -m isobench
                typed = [text for text in shlex.split(plan.commands[0])[3:] if not text.startswith(OUTPUT_DIR)]
                typed += [text for text in arguments if text.startswith(OUTPUT_DIR)]
            ended = sum(RunFolder(output_dir, own.key).result_file.exists() for _, own in plan.runs)
            found[shlex.join(typed)] = f"{ended:,} of {format_count(len(plan.runs), 'run')} ended"
    refuse((not found, f"nothing was run in {output_dir}: set output_dir=FOLDER, or see isobench --help"))
    width, out = max(map(len, found.values())), make_console()
    lines = [f"{count:{width}}  isobench report {command}" for command, count in found.items()]
    claims = f"isobench report {shlex.join(['--claims', EVERY, *flags])}"
    if not split_config_dirs(arguments)[0] and (foreign := sorted(counts.keys() - set(list_configs("experiment")))):
        lines.append(f"To find {', '.join(foreign)}, add --paper=FOLDER or --config-dir=FOLDER")
    for line in [*lines, "", f"Which of the papers' claims hold in these runs: {claims}"]:
        out.print(line, highlight=False, soft_wrap=True)


def _report_bundle(bundle: Path, output_dir: str, config_dirs: Sequence[str]) -> None:
    """Report on a bundle's runs and analysis, which are as the configs here (``config_dirs`` too) have them."""
    manifest = read_manifest(bundle)
    for path, reason in find_changes(bundle, manifest):
        raise UserError(f"{bundle / path}: {reason}: see what is wrong by isobench verify {bundle}")
    plan = parse_plan(read_member(bundle, PLAN_FILE), str(bundle))
    runs = [Run.of(cfg, identity.key, identity) for cfg, identity in plan.runs]
    if manifest.experiment:
        flags = [f"--config-dir={place}" for place in config_dirs]
        runs = take_own_experiment(runs, [*flags, f"{EXPERIMENT}{manifest.experiment}"])
    refuse(*((run.trouble, str(run.trouble)) for run in runs))  # a verdict on the others would not say so
    name = bundle.resolve().name
    folder = report_folder(output_dir, name if name.startswith("bundle") else f"bundle-{name}")
    analysis, shown = runs[0].cfg.analysis, None
    if f"{ANALYSIS_FOLDER}/{ABOUT_FILE}" in manifest.files and analysis:
        shown = show_stored_analysis(bundle / ANALYSIS_FOLDER, analysis, folder)
        shown.print_to(make_console())
    elif not manifest.runs:
        remedy = "add --paper=FOLDER or --config-dir=FOLDER"
        raise UserError(f"isobench has no analysis of {manifest.experiment}: {remedy}")
    if manifest.runs:
        _show_report(_require_records(runs, f"{bundle}: it is damaged"), folder, shown, [])


def _report_plan(file: Path, settings: Sequence[str]) -> None:
    """Report on the runs of a plan without an experiment; its command, data and weights need not be here."""
    output_dir = str(file.absolute().parent.parent)
    with doing(f"reading the plan {file}"):
        plan = parse_plan(read_bounded(file, RECORD_LIMIT), output_dir)
    refuse(
        (plan.experiment, f"{file} is of an experiment: isobench report +experiment={plan.experiment}"),
        (drop_selection(settings), "isobench report PLAN takes no setting but experiment.selection's"),
    )
    runs = take_own_experiment([Run.of(cfg, own.key, own) for cfg, own in plan.runs], settings)
    runs = _require_records(runs, output_dir)
    changed = describe_changed_sources(runs, read_own_classes().values())
    _show_report(runs, find_report_folder(runs), None, changed)


def _require_records(runs: list[Run], where: str) -> list[Run]:
    """Return the runs with their states; if none has ended, raise a UserError that says ``where``."""
    check_predictions(runs)
    print_troubles(runs)
    if not any(run.record for run in runs):
        missing = "has an intact record" if any(run.trouble for run in runs) else "has ended yet"
        name = runs[0].cfg.experiment.name if runs else None
        raise UserError(f"no run of {name or 'this sweep'} {missing} in {where}")
    return add_states(runs)


def _show_report(runs: list[Run], folder: Path, shown: "Shown | None", notes: Sequence[str]) -> None:
    """Build the report of runs, write it into a folder, and print its tables and comparisons."""
    from isobench.report.build import build_report
    from isobench.report.output.page import write_report
    from isobench.report.output.terminal import print_comparisons, print_table

    built = build_report(runs[0].cfg.experiment, runs, notes=notes)
    page = write_report(built, runs, folder, shown)
    print_table(built, runs)
    print_comparisons(built)
    print("Beside the page: report.md, tables.tex, and runs, epochs, cells (Parquet, CSV)")
    print(f"Page: {page}")


def repeat_analysis(runs: list[Run]) -> "tuple[Shown | None, list[str]]":
    """Carry out the analysis of trained runs again; return what it shows, else None and the reason for the page."""
    load_analysis(runs[0].cfg.analysis)  # a mistake in its settings is reported as one
    try:
        return analyse_trained_runs(runs[0].cfg.experiment, runs), []
    except StorageError:
        raise
    except UserError as error:
        note = f"the analysis can't be carried out: {extract_first_line(error)}"
        print_note(note)
        return None, [f"{note[0].upper()}{note[1:]}."]


def _report_claims(arguments: list[str], paper: str | None) -> None:
    """Print what the papers, or one of them, claim with the outcomes in this output folder, and write it to files."""
    with compose_sweep(arguments) as (_, base, _):
        output_dir = str(base.output_dir)
    read_selection(arguments)  # report a mistake in it before any claim is judged
    from isobench.common.tidy import make_table, write_table
    from isobench.report.output.page import render_claims
    from isobench.report.output.terminal import print_claims
    from isobench.report.output.text import format_claims_markdown

    claims = judge_claims(arguments, output_dir, paper)
    print_claims(claims)
    if not Path(output_dir).is_dir():
        print_note(f"{output_dir} does not exist: nothing was run there")
        return
    name = f"claims_{paper}" if paper else "claims"
    folder = reports_folder(output_dir)
    with require_report_folder(folder), explain_output_errors(folder):
        write_table(folder, name, make_table(claims))
        write_text(folder / f"{name}.md", format_claims_markdown(claims))
        write_text(folder / f"{name}.html", render_claims(claims))
    print(f"Written to {folder}/: {name} (Parquet, CSV, Markdown, HTML)")


def judge_claims(arguments: list[str], output_dir: str, paper: str | None) -> list[dict[str, Any]]:
    """Judge every claim, or a paper's, by what an output folder has, a row for each; nothing is started for it."""
    from isobench.report.claims import judge_claim, load_claims

    find_report = cache(lambda experiment: _build_experiment_report(experiment, arguments))

    def find_rows(experiment: str, name: str) -> Any:
        return read_claimed_rows(report_folder(output_dir, experiment), name)

    with print_above_bars():
        claims = track_progress(load_claims(paper), "judging claims")
        return [_describe_claim(claim, *judge_claim(claim, find_report, find_rows)) for claim in claims]


def _describe_claim(claim: "Claim", outcome: "Outcome", scale: str = "") -> dict[str, Any]:
    """Make the row of a judged claim that is printed and written; ``scale``: how our setting differs."""
    about = {"paper": claim.paper, "claim": claim.text, "criterion": claim.criterion, "outcome": outcome.word}
    return {**about, "numbers": outcome.numbers, "scale": scale, "experiment": claim.experiment}


def report_published(arguments: Sequence[str], paper: str | None) -> None:
    """Print which claims accept print and reject broken numbers; exit with 1 if one does not. ``paper``: of one."""
    from isobench.report.claims import Outcome, find_faults, judge_print, load_claims
    from isobench.report.output.terminal import print_claims

    if arguments:
        raise UserError(f"isobench report --published judges printed numbers alone: leave out {arguments[0]}")
    claims = load_claims(paper)
    faults = [find_faults(claim) for claim in claims]
    rows = []
    for claim, found in zip(claims, faults, strict=True):
        word = "not in print" if isinstance(claim.printed, str) else "accepts print"
        word = "rejects print" if claim.contradicted else word
        outcome = Outcome("\n".join(found or [word, "rejects broken"]), judge_print(claim).numbers)
        rows.append(_describe_claim(claim, outcome))
    print_claims(rows, by_print=True)
    decidable = sum(not isinstance(claim.printed, str) and not claim.contradicted for claim in claims)
    sound = f"{faults.count([])} of {len(claims)} checks"
    print(f"{sound} reject broken numbers, and accept print where it can decide ({decidable}).")
    counts = {name: count_numbers(name) for name in ([paper] if paper else find_papers())}
    listed = ", ".join(f"{name} {count:,}" for name, count in counts.items() if count)
    print(f"Published numbers that reports show beside ours: {listed or 'none'}.")
    for claim, found in zip(claims, faults, strict=True):
        if found:
            print_note(f"correct {claim.paper}, {claim.text}: {'; '.join(found)}")
    if any(faults):
        raise SystemExit(1)


def _build_experiment_report(experiment: str, arguments: list[str]) -> "Report | None":
    """Build the report of an experiment's runs, for judging claims; None if none of them has ended."""
    from isobench.report.build import build_report

    arguments = [f"{EXPERIMENT}{experiment}", *arguments]
    try:
        _, runs = find_runs(drop_selection(arguments))
        runs = take_own_experiment(runs, arguments)
    except NoGridError:  # and no run of this experiment was asked for at another scale
        return None
    check_predictions(runs)
    print_troubles(runs)
    if not any(run.record for run in runs):
        return None
    # No claim is about shared examples, whose predictions take long to read.
    return build_report(runs[0].cfg.experiment, add_states(runs), with_pairs=False)
