"""Train a classifier with IsoBN in plain PyTorch: no Lightning, no Hydra, no config.

    python examples/isobn_in_pytorch.py

The inputs are made up: 64 features, of which a few directions hold most of the variance, as in the embeddings of
transformers. The script trains the same small network with and without IsoBN, and prints for both the accuracy on
unseen examples and how isotropic the vectors are that the classifier reads.
"""

import torch
from torch import Tensor, nn

from isobench.calibration import Calibration, IsoBN
from isobench.metrics import explained_variance, isoscore

FEATURES, WIDTH, CLASSES = 64, 32, 4


class Classifier(nn.Module):
    """An encoder, a calibration, dropout and a linear classifier: IsoBN stands right before the dropout."""

    def __init__(self, calibration: nn.Module) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.ReLU())
        self.calibration = calibration
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(WIDTH, CLASSES)

    def embed(self, x: Tensor) -> Tensor:
        """Compute the calibrated vectors, [B, WIDTH], of inputs [B, FEATURES]."""
        return self.calibration(self.encoder(x))

    def forward(self, x: Tensor) -> Tensor:
        """Compute the logits, [B, CLASSES]."""
        return self.head(self.dropout(self.embed(x)))


def make_examples(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Make inputs [N, FEATURES] of uneven variance, and their classes [N]."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, FEATURES, generator=generator) * torch.linspace(1, -3, FEATURES).exp()
    labels = (x[:, 1] > 0).long() + 2 * (x[:, 2] > 0).long()
    return x, labels


def train(calibration: nn.Module, epochs: int = 10, batch_size: int = 32) -> tuple[float, Tensor]:
    """Train a classifier with a calibration; return its accuracy on unseen examples and their vectors [N, WIDTH]."""
    torch.manual_seed(0)
    model = Classifier(calibration)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    x, labels = make_examples(1024, seed=1)
    for _ in range(epochs):
        model.train()  # IsoBN updates its moving statistics
        for index in torch.randperm(len(x)).split(batch_size):
            loss = nn.functional.cross_entropy(model(x[index]), labels[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    model.eval()  # IsoBN uses the statistics that it has
    x, labels = make_examples(1024, seed=2)
    with torch.no_grad():
        accuracy = (model(x).argmax(1) == labels).float().mean().item()
        return accuracy, model.embed(x)


def main() -> None:
    """Train both and print what they reach. ``Calibration`` itself changes nothing."""
    for name, calibration in (("plain", Calibration(WIDTH)), ("IsoBN", IsoBN(WIDTH, beta=1.0))):
        accuracy, vectors = train(calibration)
        first = explained_variance(vectors, k=1)
        print(f"{name}: accuracy {accuracy:.3f}, EV1 {first:.3f}, IsoScore {isoscore(vectors):.3f}")


if __name__ == "__main__":
    main()
