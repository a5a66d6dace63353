"""Draw the picture of README: an even and an uneven cloud of points, with their EV1 and IsoScore below.

    python docs/site/clouds.py

It writes ``docs/figures/clouds.svg``. Its colours are read on a light and on a dark page.
"""

import sys
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from isobench.analyses.shown import Shown  # noqa: E402
from isobench.calibration import whiten  # noqa: E402
from isobench.common.plots import PALETTE, make_panels  # noqa: E402
from isobench.metrics import explained_variance, isoscore  # noqa: E402

FILE = ROOT / "docs" / "figures" / "clouds.svg"
GREY = "#808080"  # on white and on black
CLOUDS = {"even: isotropic": (1.0, 1.0), "uneven: anisotropic": (1.0, 0.15)}  # standard deviation along each axis


def make_cloud(deviations: tuple[float, float]) -> Tensor:
    """Make 300 points [N, 2] with exactly these deviations, turned by an eighth of a circle."""
    points = whiten(torch.randn(300, 2, generator=torch.Generator().manual_seed(0))) * torch.tensor(deviations)
    return points @ torch.tensor([[1.0, 1.0], [-1.0, 1.0]]) / 2**0.5


def draw_clouds() -> Figure:
    """Draw both clouds, each with its two measures."""
    figure, axes = make_panels(1, 2, 2.2, sharex=True, sharey=True)
    figure.patch.set_alpha(0)
    for axis, (name, deviations) in zip(axes[0], CLOUDS.items(), strict=True):
        cloud = make_cloud(deviations)
        axis.patch.set_alpha(0)
        axis.scatter(*cloud.T.numpy(), s=6, color=PALETTE[0] if deviations[1] == 1 else PALETTE[5], linewidths=0)
        axis.set(aspect="equal", xticks=[], yticks=[])
        axis.set_title(name, color=GREY, size=12)
        axis.set_xlabel(
            f"EV1 {explained_variance(cloud, 1):.2f}, IsoScore {isoscore(cloud):.2f}", color=GREY, size=12
        )
        axis.spines[:].set_visible(False)
    return figure


def draw() -> bytes:
    """Draw the picture as an SVG file, the same bytes each time."""
    return Shown([], {"clouds": draw_clouds()}).draw()["clouds"]


if __name__ == "__main__":
    FILE.write_bytes(draw())
