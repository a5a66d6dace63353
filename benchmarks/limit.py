"""Measure how close a training step is to the machine's limit: the time of its bare matrix products.

    ISOBENCH_DATA=FOLDER python benchmarks/limit.py [--rounds 5] [--steps 6] [--threads N] [--tasks mrpc ...]

For each task, notes the matrix products of some training steps of MiniLM, forward and backward, with the shapes and
strides of their operands. Then times in turns, in one process and with the same threads, these steps and the noted
products alone, on operands that are allocated beforehand. Prints the median over rounds of products / step (target:
at least 55%). A step's products are those of the step as it is: padding counts on both sides. Operands of the same
shape share memory, and the scores that torch's fused attention computes again in its backward pass are not counted.
Both make the share rather too low than too high.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

from common import (
    compose_config,
    median_ratio,
    prepare_bare_steps,
    time_alternately,
    time_training_step,
    write_result,
)

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

TARGET = 0.55
CASES = [("rotten_tomatoes", 16), *((task, size) for task in ("cola", "mrpc", "rte") for size in (16, 32))]
aten = torch.ops.aten
PRODUCTS = {aten.mm.default: torch.mm, aten.bmm.default: torch.bmm}
SUMS = {aten.addmm.default: torch.addmm, aten.baddbmm.default: torch.baddbmm}
ATTENTION = aten._scaled_dot_product_flash_attention_for_cpu.default
ATTENTION_BACKWARD = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
Layout = tuple[tuple[int, ...], tuple[int, ...]]  # shape and strides
Product = tuple[Callable[..., Tensor], tuple[Layout, ...]]


class ProductNotes(TorchDispatchMode):
    """Note every matrix product that torch computes, as the function that computes it and its operands' layouts."""

    def __init__(self) -> None:
        super().__init__()
        self.products: list[Product] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute what is asked for, and note it if it is a product.

        Raises:
            SystemExit: a product of a kind that this benchmark doesn't know.
        """
        name = function.__name__.split(".")[0]
        if function in PRODUCTS:
            self._note(PRODUCTS[function], *args[:2])
        elif function in SUMS:
            self._note(SUMS[function], *args[:3])
        elif function is ATTENTION:
            q, k, v = (x.flatten(0, 1) for x in args[:3])  # (b * heads, Q or T, dh)
            self._note(torch.bmm, q, k.transpose(1, 2))
            self._note(torch.bmm, torch.empty(len(q), q.shape[1], k.shape[1]), v)
        elif function is ATTENTION_BACKWARD:
            gradient, q, k, v = (x.flatten(0, 1) for x in args[:4])
            weights = torch.empty(len(q), q.shape[1], k.shape[1])
            self._note(torch.bmm, gradient, v.transpose(1, 2))  # gradient of the weights
            self._note(torch.bmm, weights, k)  # of the queries
            self._note(torch.bmm, weights.transpose(1, 2), q)  # of the keys
            self._note(torch.bmm, weights.transpose(1, 2), gradient)  # of the values
        elif name.endswith("mm") or any(
            word in name for word in ("attention", "convolution", "linear", "addmv", "mv")
        ):
            raise SystemExit(f"benchmarks/limit.py doesn't know the product {function}: add it")
        return function(*args, **(kwargs or {}))

    def _note(self, compute: Callable[..., Tensor], *operands: Tensor) -> None:
        self.products.append((compute, tuple((tuple(x.shape), x.stride()) for x in operands)))


def allocate(layout: Layout) -> Tensor:
    """Make a tensor of random numbers with a shape and strides."""
    shape, strides = layout
    size = 1 + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    return torch.randn(size).as_strided(shape, strides)


def prepare_products(products: list[Product]) -> Callable[[], None]:
    """Allocate the operands and results of products; returns a function that computes all products, in order."""
    made: dict[Product, tuple[list[Tensor], Tensor]] = {}
    for product in products:
        if product not in made:
            operands = [allocate(layout) for layout in product[1]]
            made[product] = (operands, product[0](*operands))

    def compute() -> None:
        for product in products:
            operands, result = made[product]
            product[0](*operands, out=result)

    return compute


def count_operations(products: list[Product]) -> int:
    """Count the multiplications and additions of products."""
    total = 0
    for _, layouts in products:
        (*batch, rows, inner), (*_, columns) = layouts[-2][0], layouts[-1][0]
        total += 2 * rows * inner * columns * (batch[0] if batch else 1)
    return total


def benchmark_case(task: str, size: int, rounds: int, steps: int, threads: int | None) -> dict:
    cfg = compose_config(f"task={task}", f"optimization.batch_size={size}", f"trainer.threads={threads or 'null'}")
    module, batches, optimizer = prepare_bare_steps(cfg, steps)
    notes = ProductNotes()
    with torch.enable_grad(), notes:
        for batch in batches:
            time_training_step(module, batch, optimizer)
    compute = prepare_products(notes.products)

    def time_products(_: int) -> float:
        start = time.perf_counter()
        with torch.no_grad():
            compute()
        return time.perf_counter() - start

    def time_steps(_: int) -> float:
        return sum(time_training_step(module, batch, optimizer) for batch in batches)

    seconds = time_alternately({"step": time_steps, "products": time_products}, rounds)
    medians = {name: statistics.median(values) / len(batches) for name, values in seconds.items()}
    operations = count_operations(notes.products) / len(batches)
    share = median_ratio(seconds["products"], seconds["step"])
    print(
        f"{task}, batch {size}: products {medians['products']:.3f} s ({operations / 1e9:.1f} GFLOP, "
        f"{operations / 1e9 / medians['products']:.0f} GFLOP/s) of a step's {medians['step']:.3f} s: {share:.0%} "
        f"(target {TARGET:.0%})",
        flush=True,
    )
    return {
        "share": share, "seconds": medians, "operations a step": operations,
        "products a step": len(notes.products) / len(batches), "threads": torch.get_num_threads(),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--tasks", nargs="+", choices=sorted({task for task, _ in CASES}))
    arguments = parser.parse_args()
    result: dict[str, Any] = {"rounds": arguments.rounds, "steps": arguments.steps, "target": TARGET, "cases": {}}
    for task, size in CASES:
        if arguments.tasks and task not in arguments.tasks:
            continue
        if task != "rotten_tomatoes" and not os.environ.get("ISOBENCH_DATA"):
            print(f"{task}, batch {size}: left out, because ISOBENCH_DATA does not name a folder with GLUE's files")
            continue
        name = f"{task}, batch {size}"
        result["cases"][name] = benchmark_case(task, size, arguments.rounds, arguments.steps, arguments.threads)
    write_result("limit", result)


if __name__ == "__main__":
    main()
