"""Measure what deterministic algorithms cost: a training step of MiniLM on Rotten Tomatoes with and without it.

    python benchmarks/deterministic.py [--rounds 5] [--batch 16] [--threads 1]

On a GPU, if there is one. Torch's deterministic mode does two things: it chooses algorithms that give the same bits
every time, and it fills new memory before it is used. The second is measured alone, too.
"""

import argparse
import statistics
import tempfile

from common import compose_config, median_ratio, time_alternately, time_training_step, write_result

import torch

from isobench.runs.identity import identify
from isobench.training.build import build_run_parts

# Whether algorithms are deterministic, and whether new memory is filled.
MODES = {"deterministic": (True, True), "no filling": (True, False), "not deterministic": (False, False)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    cfg = compose_config(
        "task=rotten_tomatoes", "encoder=minilm", f"optimization.batch_size={arguments.batch}",
        f"task.train_samples={8 * arguments.batch}", "task.dev_samples=16", f"output_dir={tempfile.mkdtemp()}",
    )  # fmt: skip
    parts = build_run_parts(cfg, identify(cfg))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    module = parts.module.to(device)
    module._note_non_finite_loss = lambda loss: None  # needs a trainer
    optimizer = module.configure_optimizers()["optimizer"]
    batches = [module.transfer_batch_to_device(batch, device, 0) for batch in parts.loaders.train]

    def contestant(deterministic: bool, filling: bool):
        def measure(number: int) -> float:
            torch.use_deterministic_algorithms(deterministic)
            torch.utils.deterministic.fill_uninitialized_memory = filling
            seconds = sum(time_training_step(module, batch, optimizer) for batch in batches)
            if device.type == "cuda":
                torch.cuda.synchronize()
            return seconds

        return measure

    seconds = time_alternately({name: contestant(*mode) for name, mode in MODES.items()}, arguments.rounds)
    result = {
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "milliseconds_a_step": {
            name: round(1000 * statistics.median(times) / len(batches), 1) for name, times in seconds.items()
        },
        "cost": {name: round(median_ratio(seconds["deterministic"], times), 3) for name, times in seconds.items()},
    }
    for name, value in result.items():
        print(f"{name}: {value}")
    write_result("deterministic", result)


if __name__ == "__main__":
    main()
