"""Translation and summarisation: the states, the loss, the calibration's place, the search."""

import contextlib

import pytest
import torch
from helpers import build_parts, fails
from torch import nn

from isobench.calibration import Calibration, Flow, IsoBN
from isobench.calibration.chain import Chain, Link
from isobench.kinds.generation.module import WordLookup
from isobench.kinds.words.projection import CalibratedProjection, require_plain_logits
from isobench.metrics import cosine_regularization


def built(overrides, *more):
    found = build_parts(*overrides, *more)
    found.module.log = found.module._note_non_finite_loss = lambda *_, **__: None
    return found


def all_examples(loaders):
    collator = loaders.make_length_sorted_loader(loaders.train_tokens, 8).collate_fn
    return collator(list(range(len(loaders.train_tokens))))


def small_model(kind: str):
    from transformers import AutoConfig, AutoModelForSeq2SeqLM

    sizes = {
        "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
        "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "max_position_embeddings": 20,
    }  # fmt: skip
    if kind == "t5":
        sizes = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 1, "num_heads": 2}
    ids = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2, "decoder_start_token_id": 0}
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, vocab_size=30, init_std=0.5, **sizes, **ids)
    return AutoModelForSeq2SeqLM.from_config(config).eval()


@pytest.mark.parametrize("kind", ["bart", "marian", "t5"])
def test_capped_logits_are_refused_and_a_bias_of_the_family_is_not(kind):
    model = small_model(kind)
    if kind == "marian":
        model.final_logits_bias.normal_()
    require_plain_logits(model, "x")
    forward = model.forward

    def cap(*given, **named):
        output = forward(*given, **named)
        output.logits = output.logits.tanh()
        return output

    model.forward = cap
    with fails():
        require_plain_logits(model, "x")


class Shift(Calibration):
    def forward(self, h):
        return h.flip(1) + torch.arange(self.dim, dtype=h.dtype) / self.dim


FAMILIES = ["bart", "mbart", "t5", "marian"]
TARGETS = torch.tensor([[5, 6, 7, 8, 1], [9, 1, 0, 0, 0]])
SOURCES = torch.tensor([[3, 4, 5, 1], [6, 1, 0, 0]])


@pytest.mark.parametrize("kind", FAMILIES)
def test_states_and_their_loss_are_the_models_own(kind):
    model = small_model(kind)
    if hasattr(model, "final_logits_bias"):
        model.final_logits_bias.normal_()
    inputs = {
        "input_ids": SOURCES,
        "attention_mask": (SOURCES != 0).long(),
        "decoder_input_ids": model.prepare_decoder_input_ids_from_labels(labels=TARGETS),
    }
    real = TARGETS != 0
    with torch.no_grad():
        expected = model(**inputs).logits[real]
        projection = CalibratedProjection(model, Chain([Link(Calibration(16))]))
        with projection.capture_states(real.flatten().nonzero()[:, 0]) as kept:
            assert model(**inputs).logits.shape[1] == 0  # not computed twice
        losses = nn.functional.cross_entropy(expected, TARGETS[real], reduction="none")
        total = projection.sum_losses(kept[0], TARGETS[real]).item()
        assert total == pytest.approx(losses.double().sum().item(), rel=1e-6)
        assert torch.equal(model(**inputs).logits[real], expected)  # and without catching it is as ever


@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize("beams", [1, 3])
def test_the_search_sees_calibrated_states(kind, beams):
    """Beam search with cached keys and values, against a model whose projection has the calibration inside."""
    settings = {"num_beams": beams, "max_new_tokens": 8, "do_sample": False}
    plain, model, merged = small_model(kind), small_model(kind), small_model(kind)
    CalibratedProjection(model, Chain([Link(Shift(16))]))
    with torch.no_grad():  # W (P h + a) = (W P) h + W a
        weight = merged.get_output_embeddings().weight.clone()
        merged.set_output_embeddings(nn.Linear(16, 30))
        merged.get_output_embeddings().weight.copy_(weight.flip(1))
        merged.get_output_embeddings().bias.copy_(weight @ (torch.arange(16) / 16))
    inputs = {"input_ids": SOURCES, "attention_mask": (SOURCES != 0).long()}
    found = model.generate(**inputs, **settings)
    assert torch.equal(found, merged.generate(**inputs, **settings))
    assert not torch.equal(found, plain.generate(**inputs, **settings))


@pytest.mark.parametrize(("setting", "smoothing"), [("null", 0.0), ("0.2", 0.2)])
def test_the_loss_is_the_cross_entropy_with_szegedys_label_smoothing(tiny_translation, setting, smoothing):
    """(1 - e) nll + e mean over the vocabulary of -log p, mean over real tokens; in float64, by hand."""
    module, loaders, *_ = built(tiny_translation, f"optimization.label_smoothing={setting}")
    module.eval()
    batch = all_examples(loaders)
    states, labels = module.compute_decoder_states(batch)
    logits = states.double() @ module.projection.linear.weight.double().T
    log_p = logits - logits.logsumexp(1, keepdim=True)
    of_targets = log_p[torch.arange(len(labels)), labels]
    expected = -((1 - smoothing) * of_targets + smoothing * log_p.mean(1)).mean()
    assert module.training_step(batch, 0).item() == pytest.approx(expected.item(), rel=1e-5)


def test_chunks_leave_the_states_as_they_are(tiny_translation):
    module, loaders, *_ = built(tiny_translation)
    module.eval()
    indices = list(range(24))
    one = loaders.make_length_sorted_loader(loaders.train_tokens, 8).collate_fn
    many = type(one)(loaders.train_tokens, one.pad_id, 0)
    with torch.no_grad():
        (first, its), (second, other) = (module.compute_decoder_states(collate(indices)) for collate in (one, many))
    assert len(many(indices)["chunks"]) > 3
    assert len(first) == loaders.train_tokens.targets.lengths[:24].sum()
    assert torch.equal(its.sort().values, other.sort().values)
    assert torch.allclose(first.sort(0).values, second.sort(0).values, atol=1e-5)


def test_a_method_with_batch_statistics_sees_every_target_token_once(tiny_translation):
    module, loaders, *_ = built(tiny_translation, "calibration=isobn_paper")
    module.eval()
    with torch.no_grad():
        states, _ = module.compute_decoder_states(all_examples(loaders))
    module.chain.train()
    module.training_step(all_examples(loaders), 0)
    (isobn,) = module.chain
    assert isinstance(isobn, IsoBN)
    centred = states.double() - states.double().mean(0)
    assert torch.allclose(isobn.covariance.double(), centred.T @ centred / len(states), atol=1e-5)


def test_the_task_moves_everything_but_the_flow_and_the_flow_moves_only_itself(tiny_translation):
    module, loaders, *_ = built(tiny_translation, "calibration=flow", "calibration.levels=2")
    module.eval()
    module.chain.train()
    batch = all_examples(loaders)
    module.training_step(batch, 0).backward()
    (flow,) = module.chain
    assert isinstance(flow, Flow)
    both = {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}
    module.zero_grad()
    states, _ = module.compute_decoder_states(batch)
    flow.objective(states.detach()).backward()
    own = {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
    assert own.keys() == {name for name in both if name.startswith("chain.")}
    assert all(torch.allclose(both[name], gradient, atol=1e-6) for name, gradient in own.items())
    assert both["model.model.decoder.layers.0.fc1.weight"].abs().sum() > 0


def test_tied_embeddings_are_one_parameter(tiny_translation):
    """A penalty on the output embedding reaches the input embedding, once; it is measured and optimised once."""
    module, *_ = built(tiny_translation, "calibration=cosine", "calibration.strength=3")
    weight = module.model.get_input_embeddings().weight
    assert module.projection.linear.weight is weight
    for target in ("head", "vocabulary"):
        assert module.matrices()[target]() is weight
    (penalty,) = module.chain.losses([torch.zeros(1, 32)], module.matrices())
    assert penalty.item() == pytest.approx(3 * cosine_regularization(weight.detach()), rel=1e-4)
    optimised = [p for group in module.configure_optimizers()["optimizer"].param_groups for p in group["params"]]
    assert sum(p is weight for p in optimised) == 1


CHUNKS = [(SOURCES, TARGETS), (SOURCES[:1, :3] + 1, TARGETS[1:, :2]), (SOURCES[1:, :2], TARGETS[:1])]


def compute(model, share: bool) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    with WordLookup(model).share(CHUNKS) if share else contextlib.nullcontext():
        logits = torch.cat([
            model(input_ids=read, decoder_input_ids=written, use_cache=False).logits.flatten(0, 1)
            for read, written in CHUNKS
        ])  # fmt: skip
    logits.sin().sum().backward()
    return logits.detach(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("kind", FAMILIES)
def test_states_and_gradients_are_those_of_a_lookup_for_each_chunk(kind):
    logits, gradients = compute(small_model(kind).double(), share=True)
    expected, others = compute(small_model(kind).double(), share=False)
    assert torch.equal(logits, expected)
    assert gradients.keys() == others.keys()
    for name, gradient in gradients.items():
        assert (gradient - others[name]).norm() <= 1e-12 * others[name].norm(), name
