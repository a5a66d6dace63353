"""The dashboard shows names that runs log, of one group alone; no server is asked, so W&B's pages are not tested."""

from helpers import make_config

from isobench.cli.dashboard import MATRIX_TITLES, _build_workspace

MEASURES = ("ev1", "ev3", "ev10", "i1", "i2", "isoscore", "ev_curve_table")


def list_names(panel):
    config = panel.config
    if panel.view_type == "Vega2":
        (query,) = config.user_query.query_fields
        return [field.args[0].value for field in query.fields if field.name == "summaryTable"]
    names = [config.x_axis, config.y_axis] if panel.view_type == "Scatter Plot" else config.metrics
    return [name.removeprefix("summary:") for name in names]


def test_its_panels_show_what_is_logged_of_the_groups_runs():
    workspace = _build_workspace({"entity": "e", "project": "p"}, "glue_isobn", [make_config("task=sst2")])
    section = workspace._to_model().spec.section
    shown = {
        one.name: [name for panel in one.panels for name in list_names(panel)]
        for one in section.panel_bank_config.sections
    }
    scores = ["best/score", "best/validation/accuracy", "best/isotropy/embedding/ev1", "best/score"]
    assert shown["Scores"] == [*scores, "dev/validation/accuracy"]
    for matrix, title in MATRIX_TITLES.items():
        wanted = MEASURES[3:5] if matrix == "head" else MEASURES  # a head of two classes is on one line
        assert shown[f"Isotropy: {title}"] == [f"isotropy/{matrix}/{name}" for name in wanted]
    (runs,) = section.run_sets
    assert "glue_isobn" in str(runs.filters)
