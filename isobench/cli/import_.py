"""Merge bundles (isobench export) into an output folder, so that isobench report and status show their runs.

The runs go to output_dir (default: outputs). Each bundle is verified first (isobench verify), and nothing that it
names is run. Runs that are there already stay; if one has other results there, nothing of its bundle is imported.

Example: isobench import bundle output_dir=outputs
"""

import shlex
from pathlib import Path

from isobench.bundles.manifest import Manifest, read_manifest
from isobench.bundles.transfer import NOTHING_IMPORTED, Imported, import_bundle
from isobench.cli.command import CommandParser, read_output_dir, run_guarded, split_folders
from isobench.common.environment import collect_garbage_rarely, format_paper_flags
from isobench.common.errors import UserError
from isobench.common.terminal import format_count
from isobench.config.command_line import write_setting
from isobench.config.schema import Config
from isobench.papers.folders import PAPER_FLAG, find_papers


def main() -> None:
    parser = CommandParser("isobench import", __doc__, "[output_dir=FOLDER]", page="bundles")
    parser.add_argument("arguments", metavar="FOLDER", nargs="+", help="a bundle; ./a=b if its name has a =")
    arguments = parser.parse_args().arguments
    run_guarded(lambda: import_runs(*split_folders(arguments)))


@collect_garbage_rarely()
def import_runs(bundles: list[Path], settings: list[str]) -> None:
    """Import bundles one by one, up to one that is damaged or conflicts, and print how many runs of each are new."""
    output_dir = read_output_dir(settings, "isobench import")
    if not bundles:
        raise UserError("name the bundle to import: isobench import FOLDER")
    for bundle in bundles:
        read_manifest(bundle)  # so that a wrong name is found before anything is imported
    for bundle in bundles:
        imported = import_bundle(bundle, output_dir, _verify_bundle)
        print(_describe_import(imported, output_dir))


def _verify_bundle(bundle: Path) -> Manifest:
    """Verify a whole bundle as ``isobench verify`` does; raise UserError if anything fails."""
    from isobench.verification.folder import FAILS  # these import torch, without which --help is quick
    from isobench.verification.reproduction import Options
    from isobench.verification.verify import verify

    outcomes = verify(bundle, Options())
    if failures := outcomes.list_entries(FAILS):
        reason = f"{failures[0].subject}: {failures[0].text}"
        raise UserError(f"{bundle} can't be imported: {reason}; {NOTHING_IMPORTED}")
    assert outcomes.manifest is not None  # it would be a failure
    return outcomes.manifest


def _describe_import(imported: Imported, output_dir: str) -> str:
    manifest = imported.manifest
    words = ["isobench", "report", *map(shlex.quote, format_paper_flags())]
    if imported.paper not in (None, *find_papers()):
        words.append(f"{PAPER_FLAG}=FOLDER")  # of the paper, which is not here
    words.append(f"+experiment={manifest.experiment}" if manifest.experiment else shlex.quote(str(imported.plan)))
    if manifest.experiment and output_dir != Config.output_dir:
        words.append(write_setting("output_dir", output_dir))
    told = f"Imported {format_count(len(imported.new_files), 'file')} of the analysis {manifest.experiment}"
    if manifest.runs:
        present = len(manifest.runs) - len(imported.new_runs)
        told = f"Imported {format_count(len(imported.new_runs), 'run')} into {output_dir}; "
        told += f"{present} of the bundle's {len(manifest.runs)} were there already"
    return f"{told}\nShow them: {' '.join(words)}"
