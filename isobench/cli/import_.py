"""Run ``isobench import``: merge bundles into an output folder. The file has an underscore: import is a keyword."""

from pathlib import Path

from isobench.bundles.manifest import read_manifest
from isobench.bundles.merge import Merged, import_bundle
from isobench.cli.arguments import FlagParser, split_folders
from isobench.cli.guard import run_guarded
from isobench.common.errors import UserError
from isobench.common.garbage import collect_garbage_rarely
from isobench.common.terminal import format_count, replace_control_characters
from isobench.config.schema import Config
from isobench.runs.layout import run_folder_name
from isobench.runs.record import RunRecord

DEFAULT_OUTPUT_DIR = "outputs"


def main() -> None:
    """Parse the command line and run the command."""
    parser = FlagParser(
        prog="isobench import",
        usage="%(prog)s [-h] FOLDER [FOLDER ...] [output_dir=FOLDER]",
        description="Merges bundles (isobench export) into an output folder, so that isobench report and status show "
        "their runs. The runs go to output_dir (default: outputs). Every checksum and every record is checked first, "
        "and nothing that a bundle names is run. Runs that are there already stay; if one has other results there, "
        "nothing of its bundle is imported. Scores and tables are not computed again: isobench verify FOLDER does "
        "that.",
        allow_abbrev=False,
    )
    parser.add_argument("arguments", metavar="FOLDER", nargs="+", help="a bundle; ./a=b if its name has a =")
    arguments = parser.parse_args().arguments
    run_guarded(lambda: import_runs(*split_folders(arguments)))


@collect_garbage_rarely()
def import_runs(bundles: list[Path], settings: list[str]) -> None:
    """Import bundles one by one and print how many runs of each are new.

    Raises:
        UserError: no bundle is named, a setting is not ``output_dir``, or a manifest is damaged: nothing is imported.
            Or a bundle is damaged elsewhere, or a run of it has other results in the output folder: the bundles
            before it are imported.
        StorageError: the output folder can't be written.
    """
    output_dir = read_output_dir(settings)
    if not bundles:
        raise UserError("name the bundle to import: isobench import FOLDER")
    for bundle in bundles:
        read_manifest(bundle)  # so that a wrong name is found before anything is imported
    for bundle in bundles:
        merged = import_bundle(bundle, output_dir, find_problems)
        print(replace_control_characters(describe_import(merged, output_dir)))


def find_problems(record: RunRecord, cfg: Config, predictions: bytes | None) -> list[str]:
    """Return what in a run's record contradicts its config, as ``isobench verify`` finds it.

    Raises:
        Exception: the predictions are not of the form that runs write.
    """
    from isobench.verification.predictions import read_predictions  # it imports torch, without which --help is quick
    from isobench.verification.run_check import find_contradictions

    if predictions is not None:
        read_predictions(predictions, cfg.task, record.data.examples)
    return find_contradictions(cfg, record, run_folder_name(record.key))


def read_output_dir(settings: list[str]) -> str:
    """Read the output folder from the command line's settings; raise UserError for anything else, or for two."""
    folder = DEFAULT_OUTPUT_DIR
    for text in settings:
        name, _, folder = text.partition("=")
        if name != "output_dir" or not folder:
            reason = "it takes output_dir=FOLDER only; a bundle is ./a=b"
            raise UserError(f"{text} is no setting of isobench import: {reason}")
    if len(settings) > 1:
        raise UserError("output_dir is given twice: name one folder")
    return folder


def describe_import(merged: Merged, output_dir: str) -> str:
    """Say how many runs and files were new, and what shows them."""
    manifest, lines = merged.manifest, []
    if manifest.runs:
        present = len(manifest.runs) - len(merged.new_runs)
        lines.append(
            f"Imported {format_count(len(merged.new_runs), 'run')} into {output_dir}; "
            f"{present} of the bundle's {len(manifest.runs)} were there already"
        )
        name = f" +experiment={manifest.experiment}" if manifest.experiment else ""
        place = "" if output_dir == DEFAULT_OUTPUT_DIR else f" output_dir={output_dir}"
        lines.append(f"Show them: isobench {'report' if name else 'status'}{name}{place}")
        if manifest.analysis:
            lines.append("Its analysis is not imported: the report makes it of all runs")
    else:
        lines.append(f"Imported {format_count(len(merged.new_files), 'file')} of the analysis {manifest.experiment}")
    return "\n".join(lines)
