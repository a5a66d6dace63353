"""Two processes that share a batch are one: the same gradients and state as a process with the whole batch."""

import socket
from contextlib import closing

import pytest
import torch
from torch import distributed, nn
from torch.multiprocessing import spawn
from torch.nn.parallel import DistributedDataParallel

from isobench import calibration
from isobench.calibration import Calibration
from isobench.calibration.batch_statistics import (
    count_batch_rows,
    gather_rows_with_grad,
    sum_over_processes_with_grad,
)
from isobench.training.monitor import gather_batches

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("distributed")]

DIM, ROWS, STEPS = 8, 12, 3


class Variance(Calibration):
    def regularize(self, h):
        count = count_batch_rows(h)
        mean = sum_over_processes_with_grad(h.sum(0)) / count
        return 1e-3 * (sum_over_processes_with_grad((h - mean).square().sum(0)) / count).square().sum()


METHODS = {
    "isobn_paper": ("IsoBN", {}), "batch_norm": ("BatchNorm", {}), "gradient_norm": ("GradientNorm", {"alpha": 0.5}),
    "isobn_released": ("IsoBN", {"momentum": 0.05, "eps": 1e-3, "gamma": "mean", "rescale": "released"}),
    "isobn_original": ("IsoBN", {"eps": 0, "beta": 1, "rescale": "none", "subtract_mean": True}),
    "whitening_zca": ("Whitening", {}), "whitening_pca": ("Whitening", {"form": "pca", "k": 3}),
    "whitening_soft": ("Whitening", {"epsilon": 0.1}), "center": ("Centering", {}),
    "center_scaled": ("Centering", {"kind": "center_scaled"}),
    "all_but_the_top": ("Centering", {"kind": "all_but_the_top", "D": 2}), "fixed_norm_z": ("FixedNorm", {}),
    "fixed_norm_minmax": ("FixedNorm", {"kind": "minmax"}), "fixed_norm_l2": ("FixedNorm", {"kind": "l2"}),
    "cosine": ("CosineRegularization", {}), "decorrelation": ("Decorrelation", {}), "uniformity": ("Uniformity", {}),
    "sigreg": ("SIGReg", {}), "spectrum": ("SpectrumControl", {}), "flow": ("Flow", {"levels": 2, "width": 4}),
    "variance": (Variance, {}), "istar": ("IStar", {"strength": 2.0, "zeta": 0.3}),
    "istar_without_a_sample": ("IStar", {"strength": -2.0, "zeta": 0}),
}  # fmt: skip


class Model(nn.Module):
    def __init__(self, name):
        super().__init__()
        torch.manual_seed(0)
        made, settings = METHODS[name]
        method = made(DIM) if isinstance(made, type) else getattr(calibration, made)(DIM, **settings)
        self.encoder, self.head, self.calibration = nn.Linear(10, DIM), nn.Linear(DIM, 2), method.train()
        if self.calibration.out_dim != DIM:
            self.head = nn.Linear(self.calibration.out_dim, 2)

    def forward(self, x, y):
        h = self.encoder(x)
        loss = nn.functional.mse_loss(self.head(self.calibration(h)), y)
        loss = loss + self.calibration.penalty(self.head.weight) + self.calibration.regularize(h)
        return loss + self.calibration.objective(h.detach())


def batches():
    generator = torch.Generator().manual_seed(1)
    shape = (STEPS, ROWS)
    return torch.randn(*shape, 10, generator=generator) * 2 + 1, torch.randn(*shape, 2, generator=generator)


def trained(model, calibration, mine):
    inputs, targets = batches()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    encoder = model.module.encoder if isinstance(model, DistributedDataParallel) else model.encoder
    calibration.prepare(iter([encoder(inputs[0][mine]).detach()]))
    gradients = []
    for x, y in zip(inputs, targets, strict=True):
        optimizer.zero_grad()
        model(x[mine], y[mine]).backward()
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
        optimizer.step()
    return gradients, [value.clone() for value in calibration.state_dict().values()]


def work(rank, port, folder):
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    results = {}
    for name in METHODS:
        model = Model(name)
        wrapped = DistributedDataParallel(model, broadcast_buffers=False)  # nothing but the methods evens state out
        results[name] = trained(wrapped, model.calibration, slice(rank * ROWS // 2, (rank + 1) * ROWS // 2))
    results["gathered"] = gather_batches(list(batches()[0][0].split(5))[rank::2])
    mine = batches()[0][0].split([8, 4])[rank].requires_grad_()  # different numbers of rows
    stacked = gather_rows_with_grad(mine)
    stacked.square().sum().backward()
    results["stacked"] = [stacked.detach(), mine.grad]
    torch.save(results, f"{folder}/{rank}.pt")
    distributed.destroy_process_group()


@pytest.fixture(scope="module")
def of_two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    spawn(work, (port, str(folder)), nprocs=2)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


@pytest.mark.parametrize("name", METHODS)
def test_two_processes_are_one(of_two, name):
    model = Model(name)
    gradients, state = trained(model, model.calibration, slice(None))
    assert len(gradients[0]) >= 4
    for rank in range(2):
        theirs, their_state = of_two[rank][name]
        for step in range(STEPS):
            torch.testing.assert_close(theirs[step], gradients[step], rtol=2e-4, atol=1e-5)
        torch.testing.assert_close(their_state, state, rtol=2e-4, atol=1e-5)


def test_the_monitor_sees_every_processs_vectors(of_two):
    one, two, three = batches()[0][0].split(5)  # the last is shorter: nothing is repeated to fill it up
    for rank in range(2):
        assert torch.equal(torch.cat(of_two[rank]["gathered"]), torch.cat([one, three, two]))
    assert gather_batches([one, two]) == [one, two]


def test_rows_of_all_processes_are_stacked_with_their_gradient(of_two):
    whole = batches()[0][0]
    for rank in range(2):
        stacked, gradient = of_two[rank]["stacked"]
        assert torch.equal(stacked, whole)
        expected = 2 * 2 * whole.split([8, 4])[rank]  # both processes' losses depend on it; DDP takes their mean
        torch.testing.assert_close(gradient, expected)
    assert gather_rows_with_grad(whole) is whole


def test_the_halves_alone_would_differ():
    """The comparison above can fail: a process with half a batch and no word from the other has other statistics."""
    names = ["isobn_paper", "batch_norm", "whitening_zca", "center", "gradient_norm", "fixed_norm_z"]
    losses = ["decorrelation", "uniformity", "sigreg", "variance", "istar", "istar_without_a_sample"]
    for name in (*names, *losses):
        whole, half = Model(name), Model(name)
        expected = trained(whole, whole.calibration, slice(None))
        found = trained(half, half.calibration, slice(0, ROWS // 2))
        assert not torch.allclose(found[0][0][0], expected[0][0][0], rtol=2e-4, atol=1e-5), name
