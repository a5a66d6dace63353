"""Apply a fitted method, which isobench fit wrote, to vectors: they go to a .npy file, rows in their order.

Y is what `isobench diagnose` reads: vectors [N, d], or texts that an encoder embeds. It is read in batches. A row
with NaN or infinity becomes NaN. Vectors of another width, or of another encoder where both are known, are refused.

Example: isobench apply cure.safetensors Y.npy --to Z.npy
"""

from argparse import Namespace
from collections.abc import Sequence

from isobench.cli.command import run_guarded
from isobench.cli.fit import make_parser, read_vectors, split_arguments
from isobench.common.errors import refuse
from isobench.common.files import explain_output_errors, write_whole
from isobench.common.terminal import format_count
from isobench.config.schema import format_method_name


def main() -> None:
    parser = make_parser("apply", __doc__, "CURE.safetensors Y [SETTING=VALUE ...]", "Z.npy")
    options, arguments = parser.parse_sweep_arguments()
    run_guarded(lambda: _apply(options, arguments))


def _apply(options: Namespace, arguments: Sequence[str]) -> None:
    (cure_path, path), settings = split_arguments(arguments, "isobench apply CURE.safetensors Y --to Z.npy", 2)
    is_fit = options.to and options.to.suffix == ".npy" and options.to.resolve() != path.resolve()
    refuse((not is_fit, "name the file to write, another one than Y: --to Z.npy"))
    import numpy as np

    from isobench.frozen.cure import Cure
    from isobench.frozen.matrix import read_rows

    cure = Cure.load(cure_path)
    vectors, _, encoder = read_vectors(options, path, settings)
    cure.check(vectors.shape[1], encoder)
    missing: list[int] = []
    no_rows = cure.transform(read_rows(vectors, slice(0, 0)))  # has the result's type and width
    shape, done = (len(vectors), no_rows.shape[1]), 0
    with (
        explain_output_errors(options.to, "--to"),
        write_whole(options.to) as temporary,
        temporary.open("wb") as file,
    ):
        # Written batch by batch: np.save would need the whole result in memory.
        header = {"descr": np.lib.format.dtype_to_descr(no_rows.dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for batch in cure.apply(vectors):
            missing += (done + np.flatnonzero(np.isnan(batch[:, 0]))).tolist()
            done += len(batch)
            file.write(np.ascontiguousarray(batch).data)
    print(f"Written: {options.to}, {done:,} x {shape[1]} by {format_method_name(cure.calibration)}.")
    if missing:
        print(f"{format_count(len(missing), 'row')} with NaN or infinity stay NaN, first row {missing[0]} (from 0).")
