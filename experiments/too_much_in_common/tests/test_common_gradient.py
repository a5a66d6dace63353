"""Common enemies: the gradient of one step against autograd, from the command line, and with its signs broken."""

from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import WORDS, check_done, check_refused, read_analysis_rows, save_tiny, write_parquet
from torch.nn.functional import cross_entropy, normalize
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

from isobench.analyses.rows import read_stored_rows
from isobench.metrics import average_cosine
from isobench_papers.too_much_in_common import gradient

MASK = "[PAD]"  # a token of the tiny vocabulary that no text has


def make_step(predictions=6, words=40, dim=5, seed=0):
    """States around a mean of their own, an output embedding with a bias, and targets of which two are alike."""
    generator = torch.Generator().manual_seed(seed)
    states = torch.randn(predictions, dim, generator=generator).double() + 1
    weight, bias = (torch.randn(*shape, generator=generator).double() for shape in ((words, dim), (words,)))
    targets = torch.arange(predictions).clamp(max=max(0, predictions - 2))
    return states, targets, weight, bias


def differentiate_by_autograd(states, targets, weight, bias):
    weight = weight.clone().requires_grad_()
    logits = states @ weight.T
    cross_entropy(logits if bias is None else logits + bias, targets).backward()
    return weight.grad


@pytest.mark.parametrize("biased", [True, False])
def test_the_gradient_is_autograds(biased):
    states, targets, weight, bias = make_step()
    arguments = states, targets, weight, bias if biased else None
    torch.testing.assert_close(gradient.differentiate(*arguments), differentiate_by_autograd(*arguments))


def test_the_gradients_are_parallel_for_one_prediction_and_not_for_several():
    one, several = (gradient.measure(gradient.differentiate(*step), *step[:2]) for step in map(make_step, (1, 6)))
    assert (one["others"], one["targets"]) == (39, 1)
    assert one["others_cosine"] == pytest.approx(1)
    assert (one["others_away"], one["targets_away"]) == pytest.approx((1, -1))
    assert 0 < several["others_cosine"] < 0.99


def test_targets_and_other_words_are_measured_apart():
    states, targets, weight, bias = make_step()
    gradients = gradient.differentiate(states, targets, weight, bias)
    row = gradient.measure(gradients, states, targets)
    is_target = [word in targets for word in range(len(weight))]
    for name, own in (("targets", gradients[is_target]), ("others", gradients[[not x for x in is_target]])):
        assert row[name] == len(own)
        assert row[f"{name}_cosine"] == pytest.approx(average_cosine(own))
        away = normalize(-own) @ -normalize(states.mean(0), dim=0)
        assert row[f"{name}_away"] == pytest.approx(away.mean().item())
        assert row[f"{name}_norm"] == pytest.approx(own.norm(dim=1).mean().item())
    signs = torch.from_numpy(np.random.default_rng(0).choice([-1.0, 1.0], len(weight)))[:, None]
    broken = gradient.measure(gradients * signs, states, targets)
    assert abs(broken["others_cosine"]) < 0.1 < row["others_cosine"]


def test_the_readme_has_the_bundles_numbers():
    study = Path(__file__).parents[1]
    text = " ".join((study / "README.md").read_text(encoding="utf-8").split())
    row = read_stored_rows(study / "results/common_gradient/analysis", ["gradients"])["gradients"][-1]
    assert f"SmolLM2, {row['predictions']} predictions" in text
    assert f"| words that are no target | {row['others_cosine']:.2f} | {row['others_away']:.2f} |" in text
    assert f"| targets | {row['targets_cosine']:.2f} | {row['targets_away']:.2f} |" in text
    assert f"gradients are {row['targets_norm'] / row['others_norm']:.0f} times as long" in text


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["gpt2", "bert"])
def test_common_gradient_from_the_command_line(cli, cache, tmp_path, architecture):
    texts = [" ".join(np.random.default_rng(0).choice(WORDS, 16)), "never read"]
    write_parquet(tmp_path / "corpus" / "some.parquet", {"text": texts})
    save_tiny(tmp_path / "model", architecture)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    kind, is_masked = AutoModelForCausalLM, architecture == "bert"
    if is_masked:
        tokenizer.add_special_tokens({"mask_token": MASK})
        tokenizer.save_pretrained(tmp_path / "model")
        kind = AutoModelForMaskedLM
        kind.from_pretrained(tmp_path / "model").save_pretrained(tmp_path / "model")  # with a head for words
    arguments = [
        "+experiment=common_gradient", "encoder=local", f"encoder.path={tmp_path / 'model'}", f"data.cache={cache}",
        f"data.root={tmp_path}", f"output_dir={tmp_path}", "analysis.corpus=wikitext", "analysis.texts=1",
        "analysis.length=8", "analysis.masked=0.999",
    ]  # fmt: skip
    every = 16 if is_masked else 14
    check_done(cli(*arguments, f"analysis.predictions=[1,{every}]"))
    first, last = read_analysis_rows(tmp_path, "common_gradient")["gradients"]
    assert (first["predictions"], last["predictions"]) == (1, every)
    assert first["others_cosine"] == pytest.approx(1)
    model = kind.from_pretrained(tmp_path / "model").eval()
    ids = tokenizer(texts[0], add_special_tokens=False, return_tensors="pt")["input_ids"].view(2, 8)
    given, targets = (torch.full_like(ids, tokenizer.mask_token_id), ids) if is_masked else (ids[:, :-1], ids[:, 1:])
    targets = targets.flatten()
    projection, kept = model.get_output_embeddings(), []
    projection.register_forward_pre_hook(lambda _, inputs: kept.append(inputs[0].detach().flatten(0, 1).double()))
    model(input_ids=given)
    weight, bias = (None if x is None else x.detach().double() for x in (projection.weight, projection.bias))
    whole = differentiate_by_autograd(kept[0], targets, weight, bias)
    is_target = torch.isin(torch.arange(len(whole)), targets)
    assert last["targets"] == is_target.sum()
    assert last["others_cosine"] == pytest.approx(average_cosine(whole[~is_target]), rel=1e-3)
    assert last["targets_norm"] == pytest.approx(whole[is_target].norm(dim=1).mean().item(), rel=1e-3)
    check_refused(cli(*arguments, f"analysis.predictions=[{every + 1}]"))
