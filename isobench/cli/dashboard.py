"""Run ``isobench dashboard``: make a W&B workspace, and a W&B report, of an experiment's runs."""

import os
from collections.abc import Sequence
from typing import Any

from isobench.analyses.rows import needs_training
from isobench.cli.command import CommandParser, run_guarded
from isobench.common.errors import UserError, extract_first_line
from isobench.common.packages import require_package
from isobench.config.schema import Config
from isobench.runs.folder import report_folder
from isobench.sweep.find_runs import find_runs
from isobench.training import tracking

MATRIX_TITLES = {"embedding": "Embeddings after calibration", "head": "Head", "vocabulary": "Vocabulary"}
MEASURE_TITLES = {"ev1": "EV_1", "ev3": "EV_3", "ev10": "EV_10", "i1": "I1", "i2": "I2", "isoscore": "IsoScore"}
TRAINING_TITLES = {
    "loss": "Loss",
    "lr": "Learning rate",
    "gradient_norm": "Gradient norm",
    "examples_per_second": "Examples a second",
    "tokens_per_second": "Tokens a second",
}
PINNED_COLUMNS = ["summary:best/score", "summary:best/epoch", "summary:status", "summary:failure"]
MAX_LINES = 100  # lines a panel shows; W&B's default is 10


def main() -> None:
    """Parse the command line and run the command."""
    parser = CommandParser(
        "isobench dashboard",
        "[--report] +experiment=NAME [SETTING=VALUE ...]",
        "Makes a W&B workspace of an experiment's runs: scores, isotropy and training, by task, encoder "
        "and method. Give it +experiment=NAME and the sweep's other arguments. Prints the workspace's address; every "
        "call makes a new workspace.",
        example="+experiment=glue_isobn",
        page="docs/how-to/tracking.md",
    )
    parser.add_argument("--report", action="store_true", help="also make a W&B report, task by task")
    options, arguments = parser.parse_sweep_arguments()
    run_guarded(lambda: create_dashboard(arguments, options.report))


def create_dashboard(arguments: Sequence[str], report: bool = False) -> None:
    """Make the W&B workspace, and the W&B report if asked for, and print their addresses.

    Raises:
        UserError: a package, a login or the runs are missing, or W&B doesn't answer.
    """
    require_package("wandb-workspaces", "dashboard", "isobench dashboard")
    configs = find_tracked_configs(arguments)
    if not tracking.has_login():
        raise UserError("there is no W&B login: run wandb login (or set WANDB_API_KEY), then repeat this command")
    project = tracking.read_project()
    group = str(tracking.resolve_wandb_group(configs[0]))
    try:
        entity = find_entity_with_runs(os.environ.get("WANDB_ENTITY"), project, group, configs[0].output_dir)
        print("Workspace:", build_wandb_workspace(entity, project, group, configs).save().url)
        if report:
            wandb_report = build_wandb_report(entity, project, group, configs)
            wandb_report.save()
            print("Report:", wandb_report.url)
    except UserError:
        raise
    except Exception as error:  # no network, a wrong key, a server that says no
        raise UserError(f"W&B could not make the dashboard: {extract_first_line(error)}") from error


def find_tracked_configs(arguments: Sequence[str]) -> list[Config]:
    """Find the configs of the experiment's runs that are tracked by W&B, all in one W&B group."""
    name, runs = find_runs(arguments)
    configs = [run.cfg for run in runs]
    if configs[0].analysis and not needs_training(configs[0].analysis):
        figures = report_folder(configs[0].output_dir, name)
        raise UserError(f"{name} trains nothing, so W&B has no runs of it; its figures are in {figures}")
    tracked = [cfg for cfg in configs if cfg.tracking.backend != "none"]
    if not tracked:
        raise UserError(f"{name} was run with tracking=none, so W&B has no runs of it; run it with tracking=wandb")
    groups = list(dict.fromkeys(map(tracking.resolve_wandb_group, tracked)))
    if len(groups) > 1 or groups[0] is None:
        known = ", ".join(filter(None, groups)) or "none"
        raise UserError(f"name one W&B group with +experiment=NAME or tracking.group=NAME; the groups here: {known}")
    return tracked


def find_entity_with_runs(entity: str | None, project: str, group: str, output_dir: str) -> str:
    """Return the W&B user or team whose project has runs of the group: ``entity``, else the one who is logged in."""
    import wandb

    api = wandb.Api()
    owner = entity or str(api.default_entity)
    try:
        count = len(api.runs(f"{owner}/{project}", {"group": group}, per_page=1))
    except ValueError:  # no such project
        count = 0
    if not count:
        raise UserError(
            f"W&B has no runs of {group} in {owner}/{project}: run it while logged in, or upload what was logged "
            f"offline with wandb sync {output_dir}/wandb/offline-run-*"
        )
    return owner


def build_wandb_workspace(entity: str, project: str, group: str, configs: Sequence[Config]) -> Any:
    """Build the workspace: a section for each kind of panels, runs grouped by task, encoder and method."""
    from wandb_workspaces import expr
    from wandb_workspaces import workspaces as ws

    sections = {"Scores": build_score_panels(configs)}
    sections |= {f"Isotropy: {title}": build_isotropy_panels(matrix) for matrix, title in MATRIX_TITLES.items()}
    sections["Training"] = [
        build_line_plot(f"train/{name}", title, "epoch" if name.endswith("per_second") else tracking.STEP_METRIC)
        for name, title in TRAINING_TITLES.items()
    ]
    return ws.Workspace(
        entity=entity,
        project=project,
        name=f"isobench {group}",
        sections=[ws.Section(name=name, panels=panels, is_open=True) for name, panels in sections.items()],
        settings=ws.WorkspaceSettings(max_runs=MAX_LINES),
        runset_settings=ws.RunsetSettings(
            filters=[expr.Metric("Group") == group],
            groupby=[expr.Config("task.name"), expr.Config("encoder_label"), expr.Config("method")],
            order=[expr.Ordering(expr.Summary("best/score"), ascending=False)],
            pinned_columns=PINNED_COLUMNS.copy(),
        ),
    )


def build_wandb_report(entity: str, project: str, group: str, configs: Sequence[Config]) -> Any:
    """Build the report: a chapter for each task, with its runs grouped by encoder and method."""
    import wandb_workspaces.reports.v2 as wr
    from wandb_workspaces import expr

    blocks: list[Any] = [wr.P(f"Runs of {group}. best/ is the reported epoch, as in each run's result.json.")]
    for task in dict.fromkeys(cfg.task.name for cfg in configs):
        runs = wr.Runset(
            entity=entity,
            project=project,
            name=task,
            filters=[expr.Metric("Group") == group, expr.Metric("JobType") == task],
            groupby=["config.encoder_label", "config.method"],
        )
        panels = build_score_panels([cfg for cfg in configs if cfg.task.name == task])
        panels += build_isotropy_panels("embedding")
        blocks += [wr.H2(task), wr.PanelGrid(runsets=[runs], panels=panels)]
    return wr.Report(entity=entity, project=project, title=f"isobench {group}", blocks=blocks, width="fluid")


def build_score_panels(configs: Sequence[Config]) -> list[Any]:
    """Build the panels of scores: those of the reported epoch, every metric by epoch, and score against isotropy."""
    import wandb_workspaces.reports.v2 as wr

    tasks = {cfg.task.name: cfg.task for cfg in configs}.values()
    metrics = dict.fromkeys(f"{split}/{name}" for task in tasks for split in task.dev_splits for name in task.metrics)
    panels: list[Any] = [
        wr.BarPlot(title=f"Reported epoch: {name}", metrics=[f"best/{name}"], max_bars_to_show=MAX_LINES)
        for name in ("score", *metrics)
    ]
    x, y = (wr.SummaryMetric(f"best/{name}") for name in ("isotropy/embedding/ev1", "score"))
    panels.append(wr.ScatterPlot(title="Score and EV_1 of the embeddings", x=x, y=y))
    return panels + [build_line_plot(f"dev/{name}", name, "epoch") for name in metrics]


def build_isotropy_panels(matrix: str) -> list[Any]:
    """Build the panels of one matrix: each measure by epoch, and the curve of EV_k over k for every epoch."""
    import wandb_workspaces.reports.v2 as wr

    name = f"isotropy/{matrix}"
    panels = [
        build_line_plot(f"{name}/{key}", f"{matrix}: {title}", "epoch") for key, title in MEASURE_TITLES.items()
    ]
    curve = wr.CustomChart(  # the chart that wandb.plot.line_series makes
        query={"summaryTable": {"tableKey": f"{name}/ev_curve_table"}},
        chart_name="wandb/lineseries/v0",
        chart_fields={"step": "step", "lineKey": "lineKey", "lineVal": "lineVal"},
        chart_strings={"title": f"{matrix}: EV_k by epoch", "xname": "k"},
    )
    return [*panels, curve]


def build_line_plot(name: str, title: str, x: str) -> Any:
    """Build a panel with one metric as curves: one for each run, or for each group of runs with their range."""
    import wandb_workspaces.reports.v2 as wr

    return wr.LinePlot(title=title, x=x, y=[name], title_x="optimizer step" if x == tracking.STEP_METRIC else x)
