"""Compare training steps with transformers.Trainer: same encoder, data, batches, precision and optimiser.

    ISOBENCH_DATA=FOLDER python benchmarks/training_step.py [--tasks mrpc rte] [--batch 32] [--rounds 5] [--steps 6]

First checks that both give the same evaluation loss to 1e-5, in float32 without dropout. Then prints, for each task,
the throughput relative to Trainer with run_glue's default (padding to 128), to Trainer with dynamic padding, and to
isobench without packed sentences, with torch's dropout and the C library's own way with freed memory. A ratio is
the median over rounds of the ratio of seconds for the same batches, measured in turns in one process. On RTE the
speed-up is limited by long sentence pairs: half of them nearly fill 128 tokens.
"""

import argparse
import logging
import statistics
import tempfile
import time
from unittest.mock import patch

from common import (
    build_run,
    compose_config,
    default_allocator,
    median_ratio,
    require_data,
    time_alternately,
    write_result,
)

import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

from isobench.data import weights
from isobench.data.batches.tokens import EpochSampler
from isobench.models import tokenization

MAX_LENGTH = 128  # run_glue's default
# Against Trainer with dynamic padding, and against isobench's own steps without packing.
TARGETS = {"rotten_tomatoes": (1.8, 1.35), "cola": (1.8, 1.35), "mrpc": (1.7, 1.2), "rte": (2.2, 1.2)}


class Clock:
    """A callback that notes the time at the end of each training step."""

    def __init__(self):
        self.marks = []

    def mark(self, *_, **__):
        self.marks.append(time.perf_counter())

    def elapsed_seconds(self):
        """Return the seconds from the end of the first step to the end of the last."""
        return self.marks[-1] - self.marks[0]


class TrainerClock(Clock, TrainerCallback):
    on_step_end = Clock.mark


class LightningClock(Clock, pl.Callback):
    on_train_batch_end = Clock.mark


class FixedOrderTrainer(Trainer):
    """A Trainer that visits the examples in isobench's order."""

    order: list[int]

    def _get_train_sampler(self, *_):
        return self.order


def list_round_examples(n: int, number: int, size: int, steps: int) -> list[int]:
    """Return the indices of the examples that one round trains on, in order."""
    sampler = EpochSampler(n, seed=1)
    sampler.set_epoch(number)
    return list(sampler)[: size * steps]


def make_padding_collator(tokens, pad_id: int, length: int | None):
    """Make a collator for Trainer that pads to ``length`` tokens, or to the longest row of the batch."""

    def collate(rows):
        width = length or max(len(row[0]) for row in rows)
        batch = {"input_ids": [], "attention_mask": [], "token_type_ids": [], "labels": [row[2] for row in rows]}
        for ids, types, _ in rows:
            fill = width - len(ids)
            batch["input_ids"].append(ids + [pad_id] * fill)
            batch["attention_mask"].append([1] * len(ids) + [0] * fill)
            batch["token_type_ids"].append(types + [0] * fill)
        return {name: torch.tensor(values) for name, values in batch.items()}

    return collate


def build(task: str, batch: int, *overrides: str):
    """Build a task's config, module and loaders."""
    cfg = compose_config(
        f"task={task}", f"task.max_length={MAX_LENGTH}", f"optimization.batch_size={batch}", *overrides,
    )  # fmt: skip
    return cfg, *build_run(cfg)


def benchmark_task(task: str, batch: int, rounds: int, steps: int) -> dict:
    cfg, module, loaders = build(task, batch)
    padded = patch("isobench.models.encoders.find_first_position", lambda model: None)
    with padded, patch("isobench.kinds.classification.build.uses_cpu_dropout", lambda cfg: False):
        _, plain_module, plain_loaders = build(task, batch)
    tokenizer = tokenization.load_tokenizer(cfg.encoder, None)
    tokens = loaders.train.dataset
    size = cfg.optimization.batch_size
    theirs = AutoModelForSequenceClassification.from_pretrained(
        weights.resolve_name_or_path(cfg.encoder, None), num_labels=module.head.out_features, dtype=torch.float32
    )
    theirs.bert.pooler.dense.load_state_dict(module.pooler.dense.state_dict())
    theirs.classifier.load_state_dict(module.head.state_dict())
    spans = [slice(*pair) for pair in zip(tokens.offsets[:-1], tokens.offsets[1:], strict=True)]
    rows = [
        (tokens.ids[span].tolist(), tokens.types[span].tolist(), int(label))
        for span, label in zip(spans, tokens.labels, strict=True)
    ]
    difference = measure_loss_difference(
        module, theirs, loaders, rows, make_padding_collator(tokens, tokenizer.pad_token_id, MAX_LENGTH)
    )
    assert difference < 1e-5, f"{task}: losses differ by {difference}"

    def hugging_face(length: int | None):
        def run(number: int) -> float:
            clock = TrainerClock()
            arguments = TrainingArguments(
                tempfile.mkdtemp(), per_device_train_batch_size=size, max_steps=steps, learning_rate=2e-5,
                max_grad_norm=0, report_to="none", save_strategy="no", logging_strategy="no", disable_tqdm=True,
                use_cpu=not torch.cuda.is_available(), remove_unused_columns=False,
            )  # fmt: skip
            trainer = FixedOrderTrainer(
                theirs, arguments, train_dataset=rows, callbacks=[clock],
                data_collator=make_padding_collator(tokens, tokenizer.pad_token_id, length),
            )  # fmt: skip
            trainer.order = list_round_examples(len(rows), number, size, steps)
            with default_allocator():
                trainer.train()
            return clock.elapsed_seconds()

        return run

    def time_lightning(module, collate, number: int) -> float:
        clock = LightningClock()
        order = list_round_examples(len(rows), number, size, steps)
        loader = DataLoader(tokens, size, sampler=order, collate_fn=collate)
        trainer = pl.Trainer(
            max_steps=steps, devices=1, logger=False, callbacks=[clock], deterministic=True,
            enable_checkpointing=False, enable_model_summary=False, enable_progress_bar=False, limit_val_batches=0,
        )  # fmt: skip
        trainer.fit(module, loader)
        return clock.elapsed_seconds()

    def plain(number: int) -> float:
        with default_allocator():
            return time_lightning(plain_module, plain_loaders.train.collate_fn, number)

    contestants = {
        "pad to 128": hugging_face(MAX_LENGTH),
        "dynamic padding": hugging_face(None),
        "plain": plain,
        "isobench": lambda number: time_lightning(module, loaders.train.collate_fn, number),
    }
    seconds = time_alternately(contestants, rounds)
    result = {
        "loss difference": difference,
        "seconds": {name: statistics.median(values) / (steps - 1) for name, values in seconds.items()},
        "against padding to 128": median_ratio(seconds["pad to 128"], seconds["isobench"]),
        "against dynamic padding": median_ratio(seconds["dynamic padding"], seconds["isobench"]),
        "against plain steps": median_ratio(seconds["plain"], seconds["isobench"]),
    }
    dynamic, plain_steps = TARGETS[task]
    print(
        f"{task}, batch {batch}: {result['against padding to 128']:.2f}x padding to 128, "
        f"{result['against dynamic padding']:.2f}x dynamic padding (target {dynamic}), "
        f"{result['against plain steps']:.2f}x without packing (target {plain_steps}); "
        f"evaluation losses differ by {difference:.1e}",
        flush=True,
    )
    return result


@torch.no_grad()
def measure_loss_difference(module, theirs, loaders, rows, collate, count: int = 4) -> float:
    """Return the largest difference between the two models' mean losses over a few batches, without dropout."""
    module.eval()
    theirs.eval()
    worst = 0.0
    for number, batch in enumerate(loaders.train):
        if number == count:
            break
        mine = module.compute_task_loss(module.head(module.embed(batch)), batch["labels"])
        other = theirs(**collate([rows[i] for i in batch["index"].tolist()])).loss
        worst = max(worst, abs(float(mine) - float(other)))
    module.train()
    theirs.train()
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", choices=TARGETS, default=["mrpc", "rte", "cola"])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6)
    arguments = parser.parse_args()
    require_data()
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    tasks = {
        task: benchmark_task(task, arguments.batch, arguments.rounds, arguments.steps) for task in arguments.tasks
    }
    write_result("training_step", {**vars(arguments), "tasks": tasks})


if __name__ == "__main__":
    main()
