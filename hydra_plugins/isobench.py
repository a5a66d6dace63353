"""Show isobench's sweeper and papers to Hydra, which looks for plugins in this namespace package."""

from pathlib import Path

from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigResult
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import OmegaConf

from isobench.papers.folders import find_paper_name, find_papers, list_config_groups, write_out_paper
from isobench.sweep.sweeper import GridSweeper


class PaperFolders(SearchPathPlugin):
    """The papers' folders, in which Hydra looks for configs too."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Add each paper's folder behind isobench's own configs."""
        for name, folder in find_papers().items():
            search_path.append(provider=f"paper {name}", path=f"paper://{folder}")


class PaperConfigs(FileConfigSource):
    """The configs in a paper's folder. Its other folders, such as results/, are no groups of configs."""

    @staticmethod
    def scheme() -> str:
        """Return what a path in the search path begins with."""
        return "paper"

    def is_group(self, config_path: str) -> bool:
        """Return True for a folder of configs."""
        return config_path.partition("/")[0] in ("", *list_config_groups()) and super().is_group(config_path)

    def load_config(self, config_path: str) -> ConfigResult:
        """Load a config, and write out what it says of its own paper.

        ``${paper:}`` is the paper's folder, and a ``_target_`` that begins with a dot names a class in it. An
        experiment is compared with the numbers in the folder's published.yaml unless it says otherwise.
        """
        result, paper = super().load_config(config_path), Path(self.path)
        plain = write_out_paper(OmegaConf.to_container(result.config, resolve=False), paper)
        if config_path.startswith("experiment/") and (paper / "published.yaml").is_file():
            plain.setdefault("experiment", {}).setdefault("paper", find_paper_name(paper))
        result.config = OmegaConf.create(plain)
        return result

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        """List the configs and folders of configs in a folder."""
        names = super().list(config_path, results_filter)
        return names if config_path else [name for name in names if name in list_config_groups()]


class IsobenchSweeper(GridSweeper):
    """The sweeper that conf/config.yaml chooses (``hydra/sweeper=isobench``)."""
