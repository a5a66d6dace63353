"""Train the bench's models again in plain PyTorch, with no code of isobench: are signs and sizes the same?

    python -m isobench_papers.causes.in_torch FOLDER    # FOLDER/wikitext/{train,validation}.parquet; a minute a run

Written without isobench's code, from registration.md and conf/encoder/gpt-scratch.yaml. Prints a CSV table, as
``in_torch.csv``. Adafactor, Muon, NormFormer's norms, attention off by one and fewer frequent tokens are not in it.
"""

import argparse
import csv
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from torch import Tensor, nn
from torch.nn import functional

VOCABULARY, WINDOW, DIM, HEADS, INNER, POSITIONS, LAYERS = 4000, 64, 96, 4, 384, 128, 2
BATCH, EPOCHS, WARMUP, CLIP, DEV_WINDOWS = 16, 3, 0.1, 1.0, 300
COLUMNS = ("cause", "seed", "lr", "loss", "vocabulary_cosine", "states_cosine", "vocabulary_isoscore")
RUNS = {  # cause: learning rate, what is changed
    "base": (0.003, ""),
    "coupled Adam": (0.003, "coupled"),
    "SGD": (0.3, "sgd"),
    "untied": (0.003, "untied"),
    "attention averages": (0.003, "average"),
    "untrained blocks": (0.01, "frozen"),
    "norms after": (0.001, "after"),
}


def read_windows(folder: Path) -> tuple[Tensor, Tensor]:
    """Read training and dev text as windows of tokens, [n, T], of a byte-level BPE learned from the training text."""
    texts = {
        split: [
            text for text in pq.read_table(folder / f"wikitext/{split}.parquet")["text"].to_pylist() if text.strip()
        ]
        for split in ("train", "validation")
    }
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, min_frequency=2, show_progress=False,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    tokenizer.train_from_iterator(texts["train"], trainer)
    end = tokenizer.token_to_id("</s>")

    def cut(split: str) -> Tensor:
        ids = [token for text in texts[split] for token in [*tokenizer.encode(text).ids, end]]
        return torch.tensor(ids[: len(ids) // WINDOW * WINDOW]).view(-1, WINDOW)

    return cut("train"), cut("validation")[:DEV_WINDOWS]


class Block(nn.Module):
    """A layer: causal attention and a feed-forward part, with norms before or after each."""

    def __init__(self, change: str) -> None:
        super().__init__()
        self.average, self.after = change == "average", change == "after"
        self.query, self.key, self.value, self.out = (nn.Linear(DIM, DIM) for _ in range(4))
        self.first_norm, self.second_norm = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.up, self.down = nn.Linear(DIM, INNER), nn.Linear(INNER, DIM)

    def attend(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        query, key, value = (
            part(x).view(batch, length, HEADS, -1).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        if self.average:
            read = value.cumsum(2) / torch.arange(1, length + 1)[:, None]
        else:
            read = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(read.transpose(1, 2).reshape(x.shape))

    def feed(self, x: Tensor) -> Tensor:
        return self.down(functional.relu(self.up(x)))

    def forward(self, x: Tensor) -> Tensor:
        if self.after:
            x = self.first_norm(x + self.attend(x))
            return self.second_norm(x + self.feed(x))
        x = x + self.attend(self.first_norm(x))
        return x + self.feed(self.second_norm(x))


class LanguageModel(nn.Module):
    """A GPT; ``change``: the one thing in which it differs from the base."""

    def __init__(self, change: str, seed: int) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(VOCABULARY, DIM), nn.Embedding(POSITIONS, DIM)
        self.blocks = nn.ModuleList(Block(change) for _ in range(LAYERS))
        self.norm = nn.Identity() if change == "after" else nn.LayerNorm(DIM)
        self.untied = nn.Embedding(VOCABULARY, DIM) if change == "untied" else None
        generator = torch.Generator().manual_seed(seed)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02, generator=generator)
                if isinstance(module, nn.Linear):
                    nn.init.zeros_(module.bias)
        if change == "frozen":
            self.blocks.requires_grad_(False)

    @property
    def vocabulary(self) -> Tensor:
        return (self.untied or self.words).weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.norm(x)

    def compute_loss(self, ids: Tensor, states: Tensor) -> Tensor:
        logits = states[:, :-1] @ self.vocabulary.T
        return functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


class CoupledAdam(torch.optim.Optimizer):
    """Adam whose second moment of the word embeddings is its mean over the words (Stollenwerk & Stollenwerk 2025)."""

    def __init__(self, model: LanguageModel, lr: float) -> None:
        rest = [parameter for parameter in model.parameters() if parameter is not model.words.weight]
        groups = [{"params": [model.words.weight], "coupled": True}, {"params": rest, "coupled": False}]
        super().__init__(groups, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                if not state:
                    state |= {"t": 0, "first": torch.zeros_like(parameter), "second": torch.zeros_like(parameter)}
                state["t"] += 1
                state["first"].lerp_(parameter.grad, 0.1)
                state["second"].mul_(0.999).addcmul_(parameter.grad, parameter.grad, value=0.001)
                second = state["second"].mean(0, keepdim=True) if group["coupled"] else state["second"]
                first, second = state["first"] / (1 - 0.9 ** state["t"]), second / (1 - 0.999 ** state["t"])
                parameter -= group["lr"] * first / (second.sqrt() + 1e-8)


def make_optimizer(model: LanguageModel, change: str, lr: float) -> torch.optim.Optimizer:
    if change == "coupled":
        return CoupledAdam(model, lr)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if change == "sgd":
        return torch.optim.SGD(trained, lr=lr, momentum=0.9)
    return torch.optim.AdamW(trained, lr=lr, weight_decay=0)


def measure_average_cosine(x: Tensor) -> float:
    """Average the cosine over all pairs of different rows, in float64."""
    x = x.double()
    x = x / x.norm(dim=1, keepdim=True)
    return float((x.sum(0).pow(2).sum() - x.pow(2).sum()) / (len(x) * (len(x) - 1)))


def measure_isoscore(x: Tensor) -> float:
    """Compute IsoScore (Rudman et al. 2022, Algorithm 1)."""
    variances = np.linalg.eigvalsh(np.cov(x.double().numpy().T))
    n = len(variances)
    scaled = math.sqrt(n) * variances / np.linalg.norm(variances)
    defect = np.linalg.norm(scaled - 1) / math.sqrt(2 * (n - math.sqrt(n)))
    share = (n - defect**2 * (n - math.sqrt(n))) ** 2 / n**2
    return float((n * share - 1) / (n - 1))


def train(cause: str, seed: int, windows: Tensor, dev: Tensor) -> tuple[float, float, float, float]:
    """Train one model; returns its loss and the measures in the order of ``COLUMNS``."""
    lr, change = RUNS[cause]
    model = LanguageModel(change, seed)
    optimizer = make_optimizer(model, change, lr)
    order = torch.Generator().manual_seed(10_000 + seed)
    steps = math.ceil(len(windows) / BATCH) * EPOCHS
    warmup = round(WARMUP * steps)
    batches = [batch for _ in range(EPOCHS) for batch in torch.randperm(len(windows), generator=order).split(BATCH)]
    for step, batch in enumerate(batches):
        for group in optimizer.param_groups:
            group["lr"] = lr * ((step + 1) / warmup if step < warmup else (steps - step) / (steps - warmup))
        loss = model.compute_loss(windows[batch], model(windows[batch]))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
    with torch.no_grad():
        parts = dev.split(30)
        states = [model(part) for part in parts]
        losses = [model.compute_loss(part, own) for part, own in zip(parts, states, strict=True)]
        words = model.vocabulary.detach()
        cosines = measure_average_cosine(words), measure_average_cosine(torch.cat(states)[:, :-1].flatten(0, 1))
    return float(torch.stack(losses).mean()), *cosines, measure_isoscore(words)


def train_all(folder: Path) -> Iterator[tuple[object, ...]]:
    windows, dev = read_windows(folder)
    for seed in (1, 2, 3):
        for cause, (lr, _) in RUNS.items():
            yield cause, seed, lr, *(round(value, 4) for value in train(cause, seed, windows, dev))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    torch.set_num_threads(1)
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(COLUMNS)
    for row in train_all(parser.parse_args().folder):
        table.writerow(row)
        sys.stdout.flush()
