"""Carry out the demo's runs by a plain loop over transformers.Trainer: what a peer would write without isobench.

    python benchmarks/trainer_loop.py [--seeds 1 2 3 4 5] [--epochs 2] [--examples 512]

benchmarks/sweep_demo.py times it. Encoder, examples, batch size, optimiser, schedule, epochs and methods are those of
``python -m isobench +experiment=glue_isobn``. Trainer pads each batch to its longest sentence and evaluates after
each epoch. It draws its own order of the examples, and its head starts from a normal distribution. It writes no
predictions, measures no isotropy and saves no checkpoint. Here every sentence is tokenised once, for all runs. The
last line of the output is a JSON list of the accuracies after the last epoch.
"""

import argparse
import json
import math
import os
import tempfile

os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "true"}

import numpy as np
import torch
from torch import Tensor, nn
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
    set_seed,
)

from isobench.config.schema import Encoder
from isobench.data.packaged.movie_reviews import read_sentences
from isobench.data.sources import select_by_hash
from isobench.data.weights import resolve_name_or_path

METHODS = ("none", "isobn_paper", "isobn_released")
SETTINGS = {"isobn_paper": (0.95, 0.1, 0.5), "isobn_released": (0.05, 1e-3, 0.5)}  # momentum, eps and beta
BATCH_SIZE, EVALUATION_BATCH_SIZE, LEARNING_RATE, WARMUP, MAX_LENGTH = 16, 64, 1e-4, 0.06, 64


class PlainIsoBN(nn.Module):
    """Compute IsoBN (Zhou, Lin & Ren 2021, Eqs. 4, 6-8) of embeddings [B, d], as the paper or its code does."""

    def __init__(self, dim: int, released: bool, momentum: float, eps: float, beta: float) -> None:
        super().__init__()
        self.released, self.momentum, self.eps, self.beta = released, momentum, eps, beta
        self.register_buffer("covariance", torch.zeros(dim, dim))
        self.register_buffer("deviation", torch.zeros(dim))
        self.batches = 0

    def forward(self, h: Tensor) -> Tensor:
        """Scale embeddings [B, d] -> [B, d]; in training first update the moving averages."""
        with torch.no_grad():
            if self.training:
                centred = h - h.mean(0)
                covariance = centred.T @ centred / len(h)
                weight = 1.0 if self.batches == 0 and not self.released else self.momentum
                self.covariance.lerp_(covariance, weight)
                self.deviation.lerp_(covariance.diagonal().sqrt(), weight)
                self.batches += 1
            rho = self.covariance / torch.outer(self.deviation, self.deviation).clamp(min=1e-30)
            gamma = rho.clamp(-1, 1).square().mean(1) if self.released else rho.square().sum(1)
            theta = (self.deviation * gamma + self.eps) ** -self.beta
            variance = self.covariance.diagonal() if self.released else self.deviation.square()
            scaled = (variance * theta.square()).sum() + (self.eps if self.released else 0.0)
            theta *= (variance.sum() / scaled).sqrt()
        return h * theta


def run_once(method: str, seed: int, epochs: int, tokenizer, train: list[dict], dev: list[dict]) -> float:
    """Fine-tune once and return the accuracy after the last epoch."""
    set_seed(seed)
    folder = resolve_name_or_path(Encoder(name="minilm", embedded="minilm"), None)
    model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=2, dtype=torch.float32)
    if method != "none":
        released = method == "isobn_released"
        isobn = PlainIsoBN(model.config.hidden_size, released, *SETTINGS[method])
        model.dropout = nn.Sequential(isobn, model.dropout)
    steps = epochs * math.ceil(len(train) / BATCH_SIZE)
    with tempfile.TemporaryDirectory() as output:
        arguments = TrainingArguments(
            output, num_train_epochs=epochs, learning_rate=LEARNING_RATE, warmup_steps=math.ceil(WARMUP * steps),
            per_device_train_batch_size=BATCH_SIZE, per_device_eval_batch_size=EVALUATION_BATCH_SIZE,
            weight_decay=0.0, max_grad_norm=0, eval_strategy="epoch", save_strategy="no", report_to="none",
            disable_tqdm=True, seed=seed,
        )  # fmt: skip
        trainer = Trainer(
            model, arguments, train_dataset=train, eval_dataset=dev, data_collator=DataCollatorWithPadding(tokenizer),
            compute_metrics=lambda outputs: {"accuracy": float(np.mean(outputs[0].argmax(1) == outputs[1]))},
        )  # fmt: skip
        trainer.train()
    return [entry["eval_accuracy"] for entry in trainer.state.log_history if "eval_accuracy" in entry][-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5])
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--examples", type=int, default=512)
    options = parser.parse_args()
    folder = resolve_name_or_path(Encoder(name="minilm", embedded="minilm"), None)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    splits = []
    for split, limit in (("train", options.examples), ("validation", None)):
        texts, labels = read_sentences(split)
        chosen = range(len(texts)) if limit is None else select_by_hash(len(texts), limit)
        tokens = tokenizer([texts[i] for i in chosen], truncation=True, max_length=MAX_LENGTH)
        splits.append(
            [{name: tokens[name][row] for name in tokens} | {"labels": labels[i]} for row, i in enumerate(chosen)]
        )
    scores = [
        run_once(method, seed, options.epochs, tokenizer, *splits) for seed in options.seeds for method in METHODS
    ]
    print(json.dumps(scores))


if __name__ == "__main__":
    main()
