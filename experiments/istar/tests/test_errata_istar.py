"""Check by computation what does not add up in the public code of I-STAR (experiments/istar)."""

import pytest
import torch

from isobench.metrics import isoscore


def test_one_number_cannot_be_assigned_to_two_names():
    with pytest.raises(TypeError, match="0-d tensor"):
        _, _ = torch.linalg.svdvals(torch.eye(3)).sum()  # like the code's score, a tensor without dimensions


@pytest.mark.parametrize("dim", [4, 32])
def test_the_effect_of_the_divisor_falls_with_the_batch(dim):
    generator = torch.Generator().manual_seed(0)
    mix, other = torch.randn(2, dim, dim, generator=generator, dtype=torch.float64)
    target = torch.cov((torch.randn(5000, dim, generator=generator, dtype=torch.float64) @ other).T)
    scaled = []
    for count in (16, 256):
        h = torch.randn(count, dim, generator=generator, dtype=torch.float64) @ mix
        biased = torch.cov(h.T, correction=0)
        differences = [
            isoscore(h, zeta, target) - measure((1 - zeta) * biased + zeta * target)
            for zeta in torch.linspace(0, 1, 101).tolist()
        ]
        assert differences[0] == pytest.approx(0, abs=1e-12)
        assert differences[-1] == pytest.approx(0, abs=1e-12)
        assert min(map(abs, differences[1:-1])) > 1e-7  # another number for every zeta between
        scaled.append(count * max(map(abs, differences)))
    assert 0.02 < scaled[0] < 1
    assert 0.3 < scaled[0] / scaled[1] < 3


def measure(covariance):
    values = torch.linalg.eigvalsh(covariance)
    return ((values.sum() ** 2 / values.square().sum() - 1) / (len(values) - 1)).item()


def test_padding_changes_the_score_and_so_does_its_amount():
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    model = BertModel(BertConfig(vocab_size=50, max_position_embeddings=64, initializer_range=0.3, **sizes)).eval()
    sentences = torch.randint(1, 50, (6, 10))
    scores, real_scores = [], []
    for padded in (10, 20, 60):
        ids = torch.nn.functional.pad(sentences, (0, padded - 10))
        mask = torch.arange(padded).expand(6, -1) < 10
        with torch.no_grad():
            hidden = model(input_ids=ids, attention_mask=mask.long(), output_hidden_states=True).hidden_states[1:]
        scores.append(isoscore(torch.cat([states.flatten(0, 1) for states in hidden])))
        real_scores.append(isoscore(torch.cat([states[mask] for states in hidden])))
    assert real_scores == pytest.approx(scores[:1] * 3, rel=1e-4)
    assert min(abs(a - b) for a, b in ((scores[0], scores[1]), (scores[1], scores[2]))) > 0.001


@pytest.mark.parametrize("count", [2, 5, 32])
def test_the_score_of_few_points_has_a_bound(count):
    points = torch.randn(count, 768, generator=torch.Generator().manual_seed(0))
    bound = (count - 2) / 767
    assert isoscore(points) <= bound + 1e-12
    assert isoscore(points) == pytest.approx(bound, rel=0.1, abs=1e-12)  # nearly reached by points of no structure
    target = torch.eye(768)
    assert isoscore(points, 0.2, target) > bound
    assert count != 32 or round(bound, 2) == 0.04
