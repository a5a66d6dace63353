"""Fit a post-hoc method on vectors, and keep it in a file of numbers that needs no isobench to be applied.

X is what `isobench diagnose` reads: vectors [N, d], or texts that an encoder embeds. It is read in batches. With
encoder=NAME beside vectors the file says whose they are. Rows with NaN or infinity are left out.

Example: isobench fit X.npy calibration=all_but_the_top calibration.components=1 --to cure.safetensors
"""

import json
import re
import textwrap
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isobench.cli.command import CommandParser, run_guarded, split_files
from isobench.cli.diagnose import TEXT_ENDINGS
from isobench.common.errors import refuse
from isobench.common.files import explain_output_errors, sha256_json
from isobench.config.schema import Config

if TYPE_CHECKING:  # importing torch takes a second
    from isobench.common.linalg import Array


def main() -> None:
    parser = make_parser("fit", __doc__, "X calibration=NAME [SETTING=VALUE ...]", "CURE.safetensors")
    options, arguments = parser.parse_sweep_arguments()
    run_guarded(lambda: _fit(options, arguments))


def make_parser(word: str, description: str | None, settings: str, output: str) -> CommandParser:
    parser = CommandParser(f"isobench {word}", description, settings, page="cure")
    parser.add_argument("--to", metavar=output, type=Path, help="the file to write")
    parser.add_argument("--key", metavar="NAME", help="which array, or which list column, of the vectors' file")
    parser.add_argument("--text", metavar="COLUMN", help="the column with texts")
    return parser


def _fit(options: Namespace, arguments: Sequence[str]) -> None:
    [path], settings = split_arguments(arguments, "isobench fit X calibration=NAME --to CURE.safetensors")
    is_fit = options.to and options.to.suffix == ".safetensors" and options.to.resolve() != path.resolve()
    refuse((not is_fit, "name the file to write, another one than X: --to CURE.safetensors"))
    is_pca, is_top = (any(name in setting for setting in settings) for name in ("whitening_pca", "all_but_the_top"))
    short = "D" if is_top else "k" if is_pca else "components"
    settings = [re.sub(r"^calibration\.components=", f"calibration.{short}=", s) for s in settings]
    vectors, chosen, encoder = read_vectors(options, path, settings)
    refuse((len(chosen) != 1, "name one method to fit, such as calibration=all_but_the_top (isobench methods)"))
    from isobench.frozen.cure import USES, fit_cure

    [(name, calibration)] = chosen.items()
    cure, notes = fit_cure(calibration, vectors, encoder)
    with explain_output_errors(options.to, "--to"):
        cure.save(options.to)
    print(f"Fitted {name} on {cure.rows:,} rows of {path.name} (sha256 {cure.sha256[:16]}...).", *notes, sep="\n")
    print(f"Written: {options.to}. Apply it:\n")
    print(f"    isobench apply {options.to} Y.npy --to Z.npy\n")
    if cure.matrix is None:
        print(f"{name} is not one matrix: it can't be applied without isobench.")
    else:
        for library, lines in USES.items():
            lines = textwrap.indent(lines.format(name=json.dumps(str(options.to))), "    ")
            print(f"or, without isobench, in {library} of vectors:\n\n{lines}\n")


def split_arguments(arguments: Sequence[str], usage: str, count: int = 1) -> tuple[list[Path], list[str]]:
    """Split arguments into as many paths as a command has, and settings."""
    paths, settings = split_files(arguments)
    refuse((len(paths) != count, f"name {count} file{'s' * (count > 1)}: {usage}"))
    return paths, settings


def read_vectors(
    options: Namespace, path: Path, settings: list[str]
) -> "tuple[Array, dict[str, dict[str, Any]], dict[str, str]]":
    """Read vectors, or embed texts; return them, the chosen methods by name, and what is known of the encoder."""
    from isobench.data import own_values
    from isobench.frozen import matrix
    from isobench.sweep.planning import compose_methods

    is_text = options.text or path.suffix.lower() in TEXT_ENDINGS
    is_known = any(text.startswith("encoder") for text in settings)
    cfg, chosen = compose_methods(settings) if settings or is_text else (Config(), {})
    if not is_text:
        vectors, notes = matrix.read_vectors(path, options.key)
        print(*notes, sep="\n", end="\n" * bool(notes))
        return vectors, chosen, {"name": cfg.encoder.name} if is_known else {}
    from isobench.frozen.encode import FrozenEncoder

    layer = cfg.encoder.layer
    texts = own_values.read_texts(path, options.text, cfg.data.encoding)
    encoder = FrozenEncoder(cfg, [layer])
    found = encoder.encode("texts", texts)[layer]
    about = {"name": cfg.encoder.name, "pooling": cfg.encoder.pooling, "layer": str(layer)}
    return found.vectors, chosen, about | {"weights": sha256_json(encoder.fingerprint)}
