"""Order the runs of a sweep by the settings that the experiment names."""

from isobench.common.errors import UserError
from isobench.runs.grouping import read_setting
from isobench.runs.row import Row

ORDERED_SECTIONS = ("encoder", "task")  # a grid chooses them as a whole, so an order may name them


def find_places(order: list[str], rows: list[Row]) -> dict[str, list[int]]:
    """Find each run's place, by its key, in a sweep that is started by the values of these settings.

    Args:
        order: dotted settings, the outermost first. Values come in the order of the grid. Of the sections, only
            ``encoder`` and ``task`` may be named; runs with the same settings in them come together.
        rows: all runs of the sweep.

    Raises:
        UserError: no run has such a setting, it is another section, or it is named twice.
    """
    if len(set(order)) < len(order):
        raise UserError(f"experiment.order names a setting twice: {', '.join(order)}")
    places: dict[str, list[int]] = {row.folder.key: [] for row in rows}
    for name in order:
        values = [read_setting(row.cfg, name) for row in rows]
        if name not in ORDERED_SECTIONS and any(isinstance(value, dict) for value in values):
            raise UserError(f"experiment.order: {name} is a section: name one of its settings, such as {name}.name")
        texts = list(map(str, values))
        if set(texts) == {"-"}:
            raise UserError(f"experiment.order: no run has the setting {name}: name one, such as seed")
        ranks = {text: rank for rank, text in enumerate(dict.fromkeys(texts))}
        for row, text in zip(rows, texts, strict=True):
            places[row.folder.key].append(ranks[text])
    return places
