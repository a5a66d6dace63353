"""Compose the configs of a sweep's runs quickly: Hydra composes each choice of groups once, values are set on it."""

import re
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields, replace
from functools import cache
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import OverrideType
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from isobench.config.command_line import Override
from isobench.config.schema import Config, to_config
from isobench.data.own_task import complete_config

SECTIONS = {section.name for section in fields(Config) if section.default_factory is not MISSING}
TYPED_SECTIONS = {section.name for section in fields(Config)} - {"calibration", "experiment", "monitors", "analysis"}


@dataclass(frozen=True)
class Composed:
    """What Hydra makes of some overrides.

    ``has_reference``: whether a setting refers to another one (``${seed}``); ``options``: each group's chosen one.
    """

    cfg: Config
    has_reference: bool
    options: dict[str, str]


class Composer:
    """Composes the same configs as Hydra, without asking Hydra for every run.

    A sweep has few structures, such as choices of groups, and many plain values. Hydra takes 20 ms for a composition;
    setting a value takes microseconds. Whatever is not a plain value of a known setting is left to Hydra, its errors
    included.
    """

    def __init__(self, loader: ConfigLoader, base: DictConfig) -> None:
        self.loader, self.base = loader, base
        self.schema = OmegaConf.structured(Config)
        # Ids of task and data -> the config and the completed one. An id lasts as long as its object, hence both.
        self.completed: dict[tuple[int, int], tuple[Config, Config]] = {}
        # Groups that are chosen, and the other overrides -> group -> the first override that chose it.
        self.first_choices: dict[tuple[frozenset[str], tuple[Override, ...]], dict[str, Override]] = {}
        parser = OverridesParser.create(config_loader=loader)
        # The runs of a sweep share overrides and structures, so each is worked out once.
        self.parse_override = cache(lambda override: parser.parse_override(str(override)))
        self.list_group_options = cache(loader.get_group_options)
        self.parse_value = cache(self._parse_value)
        self.compose_with_hydra = cache(self._compose_with_hydra)
        self.compose_structure = cache(self._compose_structure)
        self.set_values = cache(self._set_values)
        self.parse_choice = cache(self._parse_choice)

    def compose(self, overrides: Sequence[Override]) -> Config:
        """Return the config of one run, its task completed from the user's own files if it reads any."""
        cfg = self._compose(overrides)
        section_ids = id(cfg.task), id(cfg.data)
        if section_ids not in self.completed:
            self.completed[section_ids] = cfg, complete_config(cfg)
        completed = self.completed[section_ids][1]
        return cfg if completed.task is cfg.task else replace(cfg, task=completed.task, data=completed.data)

    def _compose(self, overrides: Sequence[Override]) -> Config:
        values = {one: parsed for one in overrides if (parsed := self.parse_value(one)) is not None}
        structure = tuple(one for one in overrides if one not in values)
        composed = self.compose_structure(structure)
        by_section: dict[str, list[Override]] = {}
        for override, (path, _) in values.items():
            by_section.setdefault(path[0], []).append(override)
        try:
            if not composed.has_reference and not self._has_conflict(structure, list(values.values())):
                sections = {name: self.set_values(structure, name, tuple(own)) for name, own in by_section.items()}
                return replace(composed.cfg, **sections)
        except (LookupError, AttributeError):  # there is no such setting: Hydra raises the right error below
            pass
        return self.compose_with_hydra(tuple(overrides)).cfg

    def find_absent_method_settings(self, overrides: Sequence[Override]) -> list[Override]:
        """List those of a run's overrides that change a setting which the run's method does not have."""
        settings = [one for one in overrides if one.is_of_method and not one.key.startswith("+")]
        if not settings:
            return []
        others = tuple(one for one in overrides if one not in settings and self.parse_value(one) is None)
        method = self.compose_structure(others).cfg.calibration
        return [one for one in settings if not _has_setting(method, one.path[1:])]

    def _set_values(self, structure: tuple[Override, ...], section: str, overrides: tuple[Override, ...]) -> Any:
        section_config = getattr(self.compose_structure(structure).cfg, section)
        for path, value in filter(None, map(self.parse_value, overrides)):
            section_config = _copy_with_value(section_config, path[1:], value)
        return section_config

    def _has_conflict(self, structure: Sequence[Override], values: Sequence[tuple[list[str], Any]]) -> bool:
        """True if a structural override, no choice of a whole section, sets what a value sets, a part or more of it.

        Their order then decides.
        """
        structure_paths = [self.parse_override(one).key_or_group.split(".") for one in structure]
        return any(a[: len(b)] == b[: len(a)] for a in structure_paths for b, _ in values if len(a) > 1)

    def _compose_structure(self, structure: tuple[Override, ...]) -> Composed:
        """Compose structural overrides.

        Choices in independent groups, such as seven tasks and two encoders, are composed by Hydra one at a time, and
        their sections are put together: eight compositions instead of fourteen. In each structure after the first,
        Hydra composes only the choices that differ from the first one's.
        """
        choices = [(choice[0], one) for one in structure if (choice := self.parse_choice(one))]
        chosen = dict(choices)
        rest = tuple(one for one in structure if self.parse_choice(one) is None)
        if len(chosen) < 2 or len(chosen) < len(choices):
            return self.compose_with_hydra(structure)
        firsts = self.first_choices.setdefault((frozenset(chosen), rest), chosen)
        try:
            first = composed = self.compose_with_hydra((*firsts.values(), *rest))
            for group, override in chosen.items():
                if override == firsts[group]:
                    continue
                single = self.compose_with_hydra((*(firsts | {group: override}).values(), *rest))
                if single.options != first.options | {group: single.options[group]}:
                    return self.compose_with_hydra(structure)
                composed = Composed(
                    replace(composed.cfg, **{group: getattr(single.cfg, group)}),
                    composed.has_reference or single.has_reference,
                    composed.options | {group: single.options[group]},
                )
            return composed
        except Exception:  # a choice may not go with the first structure's, and fail in many ways
            return self.compose_with_hydra(structure)

    def _parse_choice(self, typed: Override) -> tuple[str, str] | None:
        """Group and option of an override that chooses an option with settings of its group alone; else None."""
        override = self.parse_override(typed)
        group, option = override.key_or_group, override.value()
        if override.type != OverrideType.CHANGE or override.package or group not in SECTIONS:
            return None
        return (group, option) if isinstance(option, str) and self._has_only_settings(group, option) else None

    def _has_only_settings(self, group: str, option: str) -> bool:
        """True if an option's YAML has settings of its group alone: no package, no other files, no references."""
        path = f"{group}/{option}"
        for source in self.loader.get_sources():
            if source.available() and source.is_config(path):
                found = source.load_config(path)
                text = str(OmegaConf.to_container(found.config, resolve=False))
                return found.header.get("package") is None and "defaults" not in found.config and "${" not in text
        return False

    def _compose_with_hydra(self, overrides: tuple[Override, ...]) -> Composed:
        composed = self.loader.load_sweep_config(self.base, list(map(str, overrides)))
        settings = {key: value for key, value in composed.items_ex(resolve=False) if key != "hydra"}
        text = str(OmegaConf.to_container(OmegaConf.create(settings), resolve=False))
        has_reference = re.search(r"\$\{(?!oc\.env:)", text) is not None
        return Composed(to_config(composed), has_reference, dict(composed.hydra.runtime.choices))

    def _parse_value(self, typed: Override) -> tuple[list[str], Any] | None:
        """Return path and typed value of an override that sets one value; None for one that Hydra has to compose."""
        override = self.parse_override(typed)
        path = override.key_or_group.split(".")
        is_in_schema = path[0] in TYPED_SECTIONS
        if (
            override.type != OverrideType.CHANGE
            or override.package
            or override.is_sweep_override()
            or "${" in str(typed)
            or not (is_in_schema or path[0] == "calibration")
            or self.list_group_options(override.key_or_group)
        ):
            return None
        if is_in_schema and path[1:] and OmegaConf.select(self.schema, ".".join(path[:-1])) is None:
            return None  # of a part that may be absent, such as encoder.scratch
        value: Any = override.value()
        if isinstance(value, dict):
            return None
        if is_in_schema:
            try:  # what the schema makes of it, as Hydra would; what it refuses, Hydra refuses in better words
                OmegaConf.update(self.schema, override.key_or_group, value)
                value = OmegaConf.select(self.schema, override.key_or_group)
            except OmegaConfBaseException:
                return None
            value = OmegaConf.to_object(value) if OmegaConf.is_config(value) else value
        return path, value


def _has_setting(node: Any, path: list[str]) -> bool:
    return not path or (isinstance(node, dict) and path[0] in node and _has_setting(node[path[0]], path[1:]))


def _copy_with_value(node: Any, path: list[str], value: Any) -> Any:
    if not path:  # a whole number for a number is the same run, with the same key
        return float(value) if isinstance(node, float) and type(value) is int else value
    key, *rest = path
    is_dict = isinstance(node, dict)
    copy = _copy_with_value(node[key] if is_dict else getattr(node, key), rest, value)  # an error if it is not there
    return {**node, key: copy} if is_dict else replace(node, **{key: copy})
