"""Fit a calibration on vectors of any number, in batches, keep it in a file without code, and apply it to others."""

import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from scipy.linalg import get_blas_funcs
from torch import Tensor, nn

from isobench import calibration as methods
from isobench.calibration.base import Calibration, overrides_hook
from isobench.calibration.chain import Chain, Link
from isobench.common.errors import doing, refuse
from isobench.common.files import write_whole
from isobench.common.linalg import Array, imitate
from isobench.common.progress import track_progress
from isobench.common.terminal import format_count
from isobench.config.bounds import check_values, read_hints
from isobench.config.schema import CALIBRATION_KEYS, format_method_name, map_chain, split_chain
from isobench.frozen.matrix import describe_missing, read_rows, split_rows
from isobench.frozen.posthoc import check_post_hoc, take_batch_whole
from isobench.training.instantiate import instantiate_chain

FORMAT = "isobench cure 1"
PACKAGE = "isobench.calibration."
PIECE_ROWS = 2048  # whose products are added up at a time
EXACT_ROWS = 100_000  # of more float32 rows, a piece's products are float32, and only their sum is float64
BY_MOMENTS = (methods.Centering, methods.Whitening, methods.IsoBN, methods.BatchNorm)
GROUP = 16  # batches that are hashed at once: between them two threads wait for each other
PROBES = 48  # rows by which it is seen whether a fitted method is affine
TOLERANCE = 1e-9  # of that, relative to the largest number
STEPS, STEP_ROWS, SEED = 1_000, 256, 0  # of training a flow
SHOWN = 8  # shares of the variance in the notes
USES = {
    "NumPy, Y being an array": """from safetensors.numpy import load_file
cure = load_file({name})
Z = (Y - cure["mean"]) @ cure["matrix"]""",
    "PyTorch, Y being a tensor": """from safetensors.torch import load_file
cure = load_file({name}, str(Y.device))
Z = (Y.float() - cure["mean"]) @ cure["matrix"]""",
}


@dataclass
class Cure:
    """A fitted calibration: ``(h - mean) @ matrix`` if it is affine, else a chain of isobench's own methods."""

    calibration: dict[str, Any]  # settings as in a config
    width: int  # of the vectors, d
    rows: int  # that it was fitted on
    sha256: str  # of all their numbers, row by row, as float32 or float64
    encoder: dict[str, str]  # what is known of theirs: name, pooling, layer, digest of the weights
    mean: np.ndarray | None = None  # [d] float32
    matrix: np.ndarray | None = None  # [d, k] float32
    chain: Chain | None = None

    def check(self, width: int, encoder: dict[str, str] | None = None) -> None:
        """Raise UserError for vectors of another width, or of another encoder where both are known."""
        refuse((width != self.width, f"the cure is for vectors of width {self.width}, not {width}"))
        for key, value in (encoder or {}).items():
            known = self.encoder.get(key, value)
            refuse((known != value, f"the cure is for vectors of an encoder with {key} {known}, not {value}"))

    @torch.no_grad()
    def transform(self, batch: np.ndarray) -> np.ndarray:
        """Calibrate vectors [N, d] of float32 or float64 -> [N, k]; rows with NaN or infinity become NaN."""
        with np.errstate(invalid="ignore", over="ignore"):
            if self.chain is None:
                found = (batch - self.mean) @ self.matrix
            else:
                h = self.chain(torch.from_numpy(batch).float(), nn.Identity())[0]
                found = h.numpy().astype(batch.dtype)
        found[~np.isfinite(batch).all(1)] = np.nan
        return found

    def apply(self, vectors: Array) -> Iterator[np.ndarray]:
        """Calibrate vectors [N, d] batch by batch, in their order."""
        self.check(vectors.shape[1])
        for part in split_rows(vectors, "applying"):
            yield self.transform(read_rows(vectors, part))

    def save(self, path: Path) -> None:
        """Write a .safetensors file: numbers, and text that says what they are."""
        if self.chain is None:
            tensors = {"mean": torch.tensor(self.mean), "matrix": torch.tensor(self.matrix)}
        else:
            make_own_chain(self.calibration, self.width)  # a class from elsewhere could not be read again
            tensors = {f"state.{key}": value.clone() for key, value in self.chain.state_dict().items()}
        about = {"width": self.width, "rows": self.rows, "sha256": self.sha256}
        about |= {"calibration": json.dumps(self.calibration), "encoder": json.dumps(self.encoder)}
        with write_whole(path) as temporary:
            save_file(tensors, temporary, {"format": FORMAT} | {key: str(value) for key, value in about.items()})

    @classmethod
    def load(cls, path: Path) -> "Cure":
        """Read what ``save`` wrote; nothing in it is run."""
        with doing(f"reading the cure {path}"), safe_open(path, framework="pt") as file:
            about = file.metadata() or {}
            refuse((about.get("format") != FORMAT, "it was not written by isobench fit"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            calibration, encoder = json.loads(about["calibration"]), json.loads(about["encoder"])
            cure = cls(calibration, int(about["width"]), int(about["rows"]), about["sha256"], encoder)
            if "matrix" not in tensors:
                state = {key.removeprefix("state."): value for key, value in tensors.items()}
                chain = make_own_chain(calibration, cure.width)
                chain.load_state_dict(state)
                return replace(cure, chain=chain.eval())
            mean, matrix = (tensors[name].float().numpy() for name in ("mean", "matrix"))
            is_other = mean.shape != (cure.width,) or matrix.ndim != 2 or len(matrix) != cure.width
            refuse((is_other, f"{path} is damaged: its mean or matrix has another width than {cure.width}"))
            return replace(cure, mean=mean, matrix=matrix)


def make_own_chain(calibration: dict[str, Any], width: int) -> Chain:
    """Make a chain from settings that a file has: of isobench's own methods alone, with settings of their types."""
    links = []
    for part in sorted(split_chain(calibration), key=lambda part: part["placement"] != "before_pooler"):
        name = str(part["_target_"]).removeprefix(PACKAGE)
        kind: Any = getattr(methods, name) if name in methods.__all__ else None
        is_own = isinstance(kind, type) and issubclass(kind, Calibration)
        refuse((not is_own, f"{part['_target_']} is no method of isobench: only an affine one of yours can be kept"))
        settings = {key: value for key, value in part.items() if key not in CALIBRATION_KEYS and key[0] != "_"}
        check_values("calibration", settings, read_hints(kind.__init__))
        links.append(Link(kind(width, **settings)))
        width = links[-1].calibration.out_dim
    return Chain(links)


def fit_cure(
    calibration: dict[str, Any], vectors: Array, encoder: dict[str, str] | None = None
) -> tuple[Cure, list[str]]:
    """Fit a method or a chain, by its settings, on vectors [N, d], and say what the user should know.

    Rows with NaN or infinity are left out. A method that takes its statistics from batches takes those of all rows.
    A flow is trained: Adam at the flow's own rate, 1,000 steps of 256 rows that are drawn by ``SEED``.
    """
    check_post_hoc(calibration, may_train=True)
    name, width = format_method_name(calibration), int(vectors.shape[1])
    sha256, missing = hashlib.sha256(), np.zeros(len(vectors), bool)
    is_exact = len(vectors) <= EXACT_ROWS or read_rows(vectors, slice(0, 0)).dtype == np.float64
    rows, mean, covariance = _take_moments(_read_finite(vectors, sha256, missing), width, is_exact)
    refuse((rows < 2, f"{name} can't be fitted on {format_count(rows, 'row')} without NaN or infinity"))
    refuse((not covariance.isfinite().all(), "squares of the numbers overflow: divide all of them by a constant"))
    notes = [describe_missing(missing)] if missing.any() else []
    if rows <= width:
        notes.append(f"Only {rows:,} rows for {width:,} coordinates: a whitening of these does not fit others.")
    variances = torch.linalg.eigvalsh(covariance).flip(0).clamp_min(0)
    if variances.sum() <= 1e-24 * (mean @ mean):  # equal rows differ from their mean by its rounding
        notes.append("All rows are equal: they have no directions to fit.")
    shares = (variances[:SHOWN] / variances.sum()).nan_to_num()
    notes.append(
        f"Largest components' shares of the variance: {', '.join(f'{share:.1%}' for share in shares)}.\n"
        f"Rows are {(covariance.trace() + mean @ mean).sqrt():.3g} long (root mean square): give it such rows."
    )
    generator = np.random.default_rng(SEED)

    def read(before: list[Calibration]) -> Iterator[Tensor]:
        return (_run(before, torch.tensor(batch, dtype=torch.float64)) for batch in _read_finite(vectors))

    def draw(before: list[Calibration]) -> Tensor:
        drawn = np.sort(generator.choice(np.flatnonzero(~missing), STEP_ROWS))
        return _run(before, torch.from_numpy(read_rows(vectors, drawn)).double())

    with torch.random.fork_rng([]), doing(f"fitting {name}"):
        torch.manual_seed(SEED)
        chain = instantiate_chain(take_batch_whole(calibration), width).double().eval()
        for position, part in enumerate(chain):
            before = list(chain)[:position]  # methods, which have been fitted
            _refuse_components(part, rows)
            moments = None if before else (rows, mean, covariance)
            _fit_part(part, partial(read, before), partial(draw, before), moments)
        affine = _find_affine(chain, mean, variances.mean().sqrt().item() or 1.0)
    settings = take_batch_whole(calibration)
    kept = map_chain(lambda method: {key: value for key, value in method.items() if key != "momentum"}, settings)
    cure = Cure(kept, width, rows, sha256.hexdigest(), encoder or {})
    if affine is None:
        return replace(cure, chain=chain.float()), notes
    kept_mean, matrix = (part.float().numpy() for part in affine)
    refuse((not np.isfinite(matrix).all(), f"{name}: the rows vary too little, its matrix overflows"))
    return replace(cure, mean=kept_mean, matrix=matrix), notes


def _read_finite(vectors: Array, sha256: Any = None, missing: np.ndarray | None = None) -> Iterator[np.ndarray]:
    """Yield batches of rows without NaN and infinity; hash all, on another processor, and mark those left out.

    Rows that lie in memory or a file as they are hashed are hashed from there, many batches at once.
    """
    is_plain = isinstance(vectors, np.ndarray) and vectors.dtype == np.float32 and vectors.flags.c_contiguous
    with ThreadPoolExecutor(1) as pool, np.errstate(over="ignore", invalid="ignore"):
        hashed: deque[Future[None]] = deque()
        for number, part in enumerate(split_rows(vectors, "reading vectors")):
            batch = np.asarray(vectors[part]) if is_plain else read_rows(vectors, part)
            if sha256 and not (is_plain and number % GROUP):
                group = slice(part.start, part.start + GROUP * (part.stop - part.start))
                hashed.append(pool.submit(sha256.update, np.asarray(vectors[group]) if is_plain else batch))
            if len(hashed) > 2:  # what waits holds its rows in memory
                hashed.popleft().result()
            if np.isfinite(np.ones(len(batch), batch.dtype) @ batch).all():  # so is each number
                yield batch
                continue
            finite = np.isfinite(batch).all(1)
            if missing is not None:
                missing[part] = ~finite
            if finite.any():
                yield batch[finite]


def _take_moments(batches: Iterable[np.ndarray], width: int, exact: bool) -> tuple[int, Tensor, Tensor]:
    """Return the count, the mean [d] and the covariance [d, d], divided by the count, of rows; float64."""
    kind = np.float64 if exact else np.float32
    multiply = get_blas_funcs("syrk", dtype=kind)  # the upper half alone
    count, origin, buffer, ones = 0, np.zeros(width), np.empty((PIECE_ROWS, width), kind), np.ones(PIECE_ROWS, kind)
    total, scatter = np.zeros(width), np.zeros((width, width), order="F")
    with np.errstate(over="ignore", invalid="ignore"):
        for batch in batches:
            for start in range(0, len(batch), PIECE_ROWS):
                piece = batch[start : start + PIECE_ROWS].astype(kind, copy=False)
                if not count:  # so that equal rows have no variance, and no sum of squares cancels
                    origin = piece[0] + (piece - piece[0]).mean(0)
                piece = np.subtract(piece, origin, out=buffer[: len(piece)])
                total += ones[: len(piece)] @ piece
                scatter += multiply(1.0, piece.T)
                count += len(piece)
        scatter = np.triu(scatter) + np.triu(scatter, 1).T
        shift = total / max(count, 1)
        covariance = scatter / max(count, 1) - np.outer(shift, shift)
    return count, torch.from_numpy(origin + shift), torch.from_numpy(covariance)


def _fit_part(
    part: Calibration,
    read: Callable[[], Iterator[Tensor]],
    draw: Callable[[], Tensor],
    moments: tuple[int, Tensor, Tensor] | None,
) -> None:
    """Fit one method of a chain on the rows that reach it; ``moments``: theirs, if they are known."""
    with torch.no_grad():
        if overrides_hook(part, "prepare"):
            part.prepare(read())
        part.train()
        if getattr(part, "kind", "") == "center_scaled":
            seen = 0
            for batch in read():  # so weighted, a moving average is the mean
                seen += len(batch)
                part.momentum = len(batch) / seen  # type: ignore[assignment]
                part(batch)
        elif type(part) in BY_MOMENTS:
            count, mean, covariance = moments or _take_moments((h.numpy() for h in read()), part.dim, True)
            part(imitate(mean, covariance))  # a batch with these moments
            if isinstance(part, methods.BatchNorm):
                part.variance.copy_(covariance.diagonal() * (count / (count - 1)))
        elif not type(part).__module__.startswith(PACKAGE):  # a method of the user's own
            part(torch.cat(list(read())))
    if overrides_hook(part, "objective"):
        optimizer = torch.optim.Adam(part.parameter_groups())
        for _ in track_progress(range(STEPS), "training"):
            batch = draw()
            with torch.no_grad():
                part(batch)  # which initialises a flow
            optimizer.zero_grad()
            part.objective(batch).backward()
            optimizer.step()
    part.eval()


def _refuse_components(part: Calibration, rows: int) -> None:
    count = part.top.shape[1] if isinstance(part, methods.Centering) else 0
    if isinstance(part, methods.Whitening) and part.out_dim < part.dim:
        count = part.out_dim
    refuse(
        (count == part.dim, f"without {count} components nothing is left of {count} coordinates: ask for fewer"),
        (rows <= count, f"{rows} rows vary in fewer than {count} directions: ask for fewer components"),
    )


@torch.no_grad()
def _run(parts: Iterable[Calibration], h: Tensor) -> Tensor:
    for part in parts:
        h = part(h)
    return h


def _find_affine(chain: Chain, mean: Tensor, spread: float) -> tuple[Tensor, Tensor] | None:
    """Return m [d] and A [d, k] if the fitted chain is (h - m) A; None if it is not."""
    parts, width = list(chain), len(mean)
    sizes = torch.logspace(-1, 1, PROBES, dtype=torch.float64)[:, None]
    draws = torch.randn(PROBES, width, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    probes = mean + spread * sizes * draws
    found, middle = _run(parts, probes), _run(parts, mean[None])
    matrix = (_run(parts, mean + spread * torch.eye(width, dtype=torch.float64)) - middle) / spread

    def is_right(origin: Tensor) -> bool:
        return bool((found - (probes - origin) @ matrix).abs().max() <= TOLERANCE * found.abs().max())

    if not is_right(mean):  # the method does not map the mean to 0: solve (mean - m) A = middle for m
        mean = torch.linalg.pinv(matrix.T) @ (mean @ matrix - middle[0])
    return (mean, matrix) if is_right(mean) else None
