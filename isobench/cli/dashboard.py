"""Make a W&B workspace of an experiment's runs: scores, isotropy and training, by task, encoder and method.

Give it +experiment=NAME and the sweep's other arguments. It prints the workspace's address; every call makes a new
workspace.

Example: isobench dashboard +experiment=glue_isobn
"""

import os
from collections.abc import Sequence
from typing import Any

from isobench.analyses.rows import needs_training
from isobench.cli.command import CommandParser, run_guarded
from isobench.common.errors import doing, refuse
from isobench.common.packages import require_package
from isobench.config.schema import Config
from isobench.sweep.find_runs import find_runs
from isobench.training import tracking

MATRIX_TITLES = {"embedding": "Embeddings after calibration", "head": "Head", "vocabulary": "Vocabulary"}
MEASURE_TITLES = {"ev1": "EV1", "ev3": "EV3", "ev10": "EV10", "i1": "I1", "i2": "I2", "isoscore": "IsoScore"}
STEP_CURVES = {"loss": "Loss", "lr": "Learning rate", "gradient_norm": "Gradient norm"}  # by optimiser step
EPOCH_CURVES = {"examples_per_second": "Examples a second", "tokens_per_second": "Tokens a second"}
PINNED_COLUMNS = ["summary:best/score", "summary:best/epoch", "summary:status", "summary:failure"]
MAX_LINES = 100  # lines a panel shows; W&B's default is 10


def main() -> None:
    parser = CommandParser("isobench dashboard", __doc__, "+experiment=NAME [SETTING=VALUE ...]", page="tracking")
    parser.add_argument("--report", action="store_true", help="also make a W&B report, task by task")
    options, arguments = parser.parse_sweep_arguments()
    run_guarded(lambda: create_dashboard(arguments, options.report))


def create_dashboard(arguments: Sequence[str], report: bool = False) -> None:
    """Make the W&B workspace, and the W&B report if asked for, and print their addresses."""
    require_package("wandb-workspaces", "dashboard", "isobench dashboard")
    configs = _find_configs(arguments)
    group = str(tracking.resolve_wandb_group(configs[0]))
    with doing("making a dashboard on W&B"):
        location = _find_project_with_runs(group, configs[0].output_dir)
        print("Workspace:", _build_workspace(location, group, configs).save().url)
        if report:
            wandb_report = _build_report(location, group, configs)
            wandb_report.save()
            print("Report:", wandb_report.url)


def _find_configs(arguments: Sequence[str]) -> list[Config]:
    """Find the configs of the experiment's runs, all in one W&B group."""
    name, runs = find_runs(arguments)
    configs = [run.cfg for run in runs]
    groups = {tracking.resolve_wandb_group(cfg) or "none" for cfg in configs}
    asks = "name one W&B group with +experiment=NAME or tracking.group=NAME"
    is_untrained = configs[0].analysis and not needs_training(configs[0].analysis)
    refuse(
        (is_untrained, f"{name} trains nothing, so W&B has no run"),
        (len(groups) != 1 or "none" in groups, f"{asks}; the groups of {name}: {', '.join(sorted(groups))}"),
    )
    return configs


def _find_project_with_runs(group: str, output_dir: str) -> dict[str, str]:
    """Return the project that has runs of the group, and its W&B user or team: WANDB_ENTITY, or who is logged in."""
    api = tracking.load_wandb().Api()
    entity = os.environ.get("WANDB_ENTITY") or str(api.default_entity)
    project = tracking.read_project()
    try:
        has_runs = len(api.runs(f"{entity}/{project}", {"group": group}, per_page=1)) > 0
    except ValueError:  # no such project
        has_runs = False
    upload = f"wandb sync {output_dir}/wandb/offline-run-*"
    remedy = f"those that were offline are uploaded by {upload}, and those of tracking=none are nowhere"
    refuse((not has_runs, f"W&B has no runs of {group} in {entity}/{project}: {remedy}"))
    return {"entity": entity, "project": project}


def _build_workspace(location: dict[str, str], group: str, configs: Sequence[Config]) -> Any:
    """Build a workspace with sections of panels, in which runs are grouped by task, encoder and method."""
    from wandb_workspaces import expr
    from wandb_workspaces import workspaces as ws

    training = [_build_line_plot(f"train/{key}", text, tracking.STEP_METRIC) for key, text in STEP_CURVES.items()]
    training += [_build_line_plot(f"train/{key}", text) for key, text in EPOCH_CURVES.items()]
    two_rows = all(len(cfg.task.labels or ()) == 2 for cfg in configs)  # measures of such a head are constant
    isotropy = {
        f"Isotropy: {title}": _build_isotropy_panels(matrix, two_rows and matrix == "head")
        for matrix, title in MATRIX_TITLES.items()
    }
    sections = {"Scores": _build_score_panels(configs), **isotropy, "Training": training}
    runs = ws.RunsetSettings(
        filters=[expr.Metric("Group") == group],
        groupby=[expr.Config("task.name"), expr.Config("encoder_label"), expr.Config("method")],
        order=[expr.Ordering(expr.Summary("best/score"), ascending=False)],
        pinned_columns=PINNED_COLUMNS.copy(),
    )
    return ws.Workspace(
        **location,
        name=f"isobench {group}",
        sections=[ws.Section(name=name, panels=panels, is_open=True) for name, panels in sections.items()],
        settings=ws.WorkspaceSettings(max_runs=MAX_LINES),
        runset_settings=runs,
    )


def _build_report(location: dict[str, str], group: str, configs: Sequence[Config]) -> Any:
    """Build a report with a chapter for each task, in which runs are grouped by encoder and method."""
    import wandb_workspaces.reports.v2 as wr
    from wandb_workspaces import expr

    blocks: list[Any] = [wr.P(f"Runs of {group}. best/ is the reported epoch, as in each run's result.json.")]
    for task in dict.fromkeys(cfg.task.name for cfg in configs):
        filters = [expr.Metric("Group") == group, expr.Metric("JobType") == task]
        runs = wr.Runset(**location, name=task, filters=filters, groupby=["config.encoder_label", "config.method"])
        panels = _build_score_panels([cfg for cfg in configs if cfg.task.name == task])
        panels += _build_isotropy_panels("embedding")
        blocks += [wr.H2(task), wr.PanelGrid(runsets=[runs], panels=panels)]
    return wr.Report(**location, title=f"isobench {group}", blocks=blocks, width="fluid")


def _build_score_panels(configs: Sequence[Config]) -> list[Any]:
    """Build the panels of scores: those of the reported epoch, every metric by epoch, and score against isotropy."""
    import wandb_workspaces.reports.v2 as wr

    tasks = {cfg.task.name: cfg.task for cfg in configs}.values()
    metrics = dict.fromkeys(f"{split}/{name}" for task in tasks for split in task.dev_splits for name in task.metrics)
    bars = [
        wr.BarPlot(title=f"Reported epoch: {name}", metrics=[f"best/{name}"], max_bars_to_show=MAX_LINES)
        for name in ("score", *metrics)
    ]
    x, y = wr.SummaryMetric("best/isotropy/embedding/ev1"), wr.SummaryMetric("best/score")
    scatter = wr.ScatterPlot(title="Score and EV1 of the embeddings", x=x, y=y)
    return [*bars, scatter, *(_build_line_plot(f"dev/{name}", name) for name in metrics)]


def _build_isotropy_panels(matrix: str, two_rows: bool = False) -> list[Any]:
    """Build the panels of one matrix: each measure that is logged by epoch, and the curve of EV_k for every epoch.

    ``two_rows``: the matrix has two rows, as the head of two classes. Centred, they lie on a line, so that measures
    of the variance are constant: they are left out.
    """
    import wandb_workspaces.reports.v2 as wr

    prefix = f"isotropy/{matrix}"
    curve = wr.CustomChart(  # the chart that wandb.plot.line_series makes
        query={"summaryTable": {"tableKey": f"{prefix}/ev_curve_table"}},
        chart_name="wandb/lineseries/v0",
        chart_fields={"step": "step", "lineKey": "lineKey", "lineVal": "lineVal"},
        chart_strings={"title": f"{matrix}: EV_k by epoch", "xname": "k"},
    )
    measures = [
        _build_line_plot(f"{prefix}/{key}", f"{matrix}: {title}")
        for key, title in MEASURE_TITLES.items()
        if not (two_rows and key.startswith(tracking.CONSTANT_OF_TWO))
    ]
    return measures if two_rows else [*measures, curve]


def _build_line_plot(name: str, title: str, x: str = "epoch") -> Any:
    import wandb_workspaces.reports.v2 as wr

    return wr.LinePlot(title=title, x=x, y=[name], title_x="optimizer step" if x == tracking.STEP_METRIC else x)
