"""Train cells of the laptop table by transformers alone, with no code of isobench: are they the same?

    python -m isobench_papers.isotropy_calibration.in_transformers ENCODER GLUE    # 10 minutes a run

ENCODER: a folder of transformers, distilbert-quire-v2 in isobench's cache. GLUE has wnli/{train,validation}.parquet.
Written from the paper's Appendices A and B and from laptop.md. Prints a CSV table, as ``in_transformers.csv``.
"""

import argparse
import csv
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
from torch import Tensor
from torch.nn import functional
from transformers import AutoModelForSequenceClassification, AutoTokenizer, set_seed

EPOCHS = {"wnli": 5, "rte": 3}
LR, BATCH, LENGTH, CLIP = 2e-5, 32, 128, 1.0
COLUMNS = ("task", "method", "seed", "accuracy", "i1", "i2")


def average_cosine(weight: Tensor) -> Tensor:
    """Compute the penalty: the sum of the cosines of different rows over the squared number of rows."""
    rows = functional.normalize(weight)
    return ((rows @ rows.T).sum() - len(rows)) / len(rows) ** 2


def measure_head(weight: np.ndarray) -> tuple[float, float]:
    """Measure I1 and I2 as they are printed: directions are rows of the eigenvector matrix, I2 is not averaged."""
    directions = np.linalg.eigh(weight.T @ weight)[1]
    z = np.exp(directions @ weight.T).sum(1)
    return float(z.min() / z.max()), float(np.sqrt(((z - z.mean()) ** 2).sum()) / z.mean())


def train(encoder: Path, glue: Path, task: str, method: str, seed: int) -> tuple[float, float, float]:
    """Train one model; return its accuracy in percent on the development set, and I1 and I2 of its classifier."""
    set_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    model = AutoModelForSequenceClassification.from_pretrained(encoder, num_labels=2, dtype=torch.float32)
    splits = {name: pq.read_table(glue / task / f"{name}.parquet") for name in ("train", "validation")}

    def encode(split: str, rows: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        part = splits[split].take(rows.numpy())
        first, second, labels = (part[name].to_pylist() for name in ("sentence1", "sentence2", "label"))
        texts = tokenizer(first, second, truncation=True, max_length=LENGTH, padding=True, return_tensors="pt")
        return {name: texts[name] for name in ("input_ids", "attention_mask")}, torch.tensor(labels)

    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.0)
    model.train()
    for _ in range(EPOCHS[task]):
        for rows in torch.randperm(splits["train"].num_rows).split(BATCH):
            inputs, labels = encode("train", rows)
            loss = model(**inputs, labels=labels).loss
            if method == "cosine":
                loss = loss + average_cosine(model.classifier.weight)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
    model.eval()
    right = 0
    with torch.no_grad():
        for rows in torch.arange(splits["validation"].num_rows).split(BATCH):
            inputs, labels = encode("validation", rows)
            right += int((model(**inputs).logits.argmax(1) == labels).sum())
    head = model.classifier.weight.detach().double().numpy()
    return 100 * right / splits["validation"].num_rows, *measure_head(head)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("encoder", type=Path)
    parser.add_argument("glue", type=Path)
    parser.add_argument("--tasks", nargs="+", choices=EPOCHS, default=["wnli"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(COLUMNS)
    for task in options.tasks:
        for method in ("plain", "cosine"):
            for seed in (1, 2, 3):
                values = train(options.encoder, options.glue, task, method, seed)
                table.writerow((task, method, seed, *(round(value, 4) for value in values)))
                sys.stdout.flush()
