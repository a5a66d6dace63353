"""Refuse runs of the study ``isotropy_dial`` that differ in more than the dose and the seed."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from isobench.common.errors import UserError
from isobench.config.schema import format_method_name
from isobench.runs.identity import KEY_SECTIONS, drop_targets_of_chain, select_decisive, to_plain
from isobench_papers.isotropy_dial.rows import DIALS, PLAIN

if TYPE_CHECKING:  # importing it takes seconds
    from isobench.analyses.subject import Subject

Settings = dict[str, Any]  # dotted name -> value


def refuse_mixed_settings(subjects: Sequence["Subject"]) -> None:
    """Raise UserError if a dose and a seed are not all that tells apart the runs of an encoder and task.

    Runs of one method with other settings have other names already (`isobench.analyses.names.name_subjects`). What is
    left are settings that differ between methods, settings of a method other than the dose, and the seeds of single
    random streams.
    """
    places: dict[tuple[Any, ...], list[Subject]] = {}
    shared: dict[str, list[Settings]] = {}
    own: dict[str, list[Settings]] = {}
    for subject in subjects:
        group, calibration = f"{subject.encoder}, {subject.task}", subject.cfg.calibration
        for dial in DIALS:
            dose = dial.read_dose(calibration)
            if dose is None:
                continue
            places.setdefault((group, dial.label, dose, subject.cfg.seed), []).append(subject)
            shared.setdefault(group, []).append(list_settings(subject))
            if format_method_name(dict(calibration)) != PLAIN:
                others = list_method_settings(subject)
                others.pop(f"calibration.{dial.setting}", None)
                own.setdefault(f"{group}, {dial.label}", []).append(others)
    for (group, label, dose, seed), several in places.items():
        if len(several) > 1:
            difference = find_difference([{**list_settings(s), **list_method_settings(s)} for s in several])
            raise UserError(
                f"{group}: {len(several)} runs are dose {dose:g} of {label} with seed {seed}; they differ in "
                f"{difference or 'their data or weights'}: name the settings of one on the command line"
            )
    for name, settings in (*shared.items(), *own.items()):
        if difference := find_difference(settings):
            raise UserError(
                f"{name}: the runs differ in {difference}, not only in the dose: name one value on the command line"
            )


def list_settings(subject: "Subject") -> Settings:
    """List the settings, other than seed and calibration, that decide a run's result."""
    sections = {name: select_decisive(name, getattr(subject.cfg, name)) for name in KEY_SECTIONS}
    sections = {name: value for name, value in sections.items() if name not in ("seed", "calibration")}
    sections["seeds"] = to_plain(subject.cfg.seeds)
    return {f"{name}.{key}": value for name, section in sections.items() for key, value in section.items()}


def list_method_settings(subject: "Subject") -> Settings:
    """List the settings of a run's calibration, without the class that carries it out."""
    settings = drop_targets_of_chain(dict(subject.cfg.calibration))
    return {f"calibration.{name}": value for name, value in settings.items()}


def find_difference(settings: Iterable[Mapping[str, Any]]) -> str:
    """Find the first setting in which runs differ, with its values: "task.train_samples (512, 1000)"; or empty."""
    several = list(settings)
    for name in dict.fromkeys(name for one in several for name in one):
        values = list(dict.fromkeys(str(one.get(name)) for one in several))
        if len(values) > 1:
            return f"{name} ({', '.join(values)})"
    return ""
