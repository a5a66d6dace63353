"""Language modelling: what a state may see, the loss, the masks, the windows, resumed runs, mistakes."""

import json
import math
import signal

import numpy as np
import pyarrow.parquet
import pytest
import torch
from helpers import WORDS, build_parts, fails, make_config, write_parquet
from killed_runs import outcome, start
from tampering import list_failures
from transformers import AutoConfig, AutoModelForCausalLM

import isobench
from isobench.kinds.language.module import LanguageModel
from isobench.kinds.language.windows import subsample
from isobench.kinds.words.projection import require_causal, require_plain_logits
from isobench.metrics.isotropy import average_cosine
from isobench.models.encoders import LoadedGenerator
from isobench.models.layer_forms import attend_off_by_one
from isobench.runs.identity import identify
from isobench.runs.validate import validate_config


def make_texts(n, seed):
    rng = np.random.default_rng(seed)
    return {"text": [" ".join(rng.choice(WORDS, rng.integers(3, 20))) if i % 7 else "" for i in range(n)]}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("language")
    for seed, split in enumerate(("train", "validation")):
        write_parquet(folder / f"{split}.parquet", make_texts(150, seed))
    return folder


@pytest.fixture
def language(files, tmp_path):
    named = ", ".join(f"{split}: {files / split}.parquet" for split in ("train", "validation"))
    return [
        "task=wikitext2", "encoder=gpt-scratch", "optimization=language", f"data.files={{{named}}}",
        f"data.cache={tmp_path / 'cache'}", f"output_dir={tmp_path / 'outputs'}", "tracking=none", "report=false",
        "encoder.vocabulary_size=300", "task.max_length=16", "encoder.scratch.hidden_size=16",
        "encoder.scratch.word_embed_proj_dim=16", "encoder.scratch.ffn_dim=32", "optimization.epochs=3",
        "calibration=none",
    ]  # fmt: skip


def as_bert(overrides, objective):
    kept = [text for text in overrides if not text.startswith(("encoder", "encoder.scratch"))]
    return [
        *kept, "encoder=bert-scratch", "encoder.scratch.hidden_size=16", "encoder.scratch.intermediate_size=32",
        "encoder.vocabulary_size=300", f"task.language.objective={objective}",
    ]  # fmt: skip


def first_batch(parts, size=4):
    return parts.loaders.train_tokens.collate(range(size))


@pytest.mark.slow
@pytest.mark.parametrize("family", ["opt", "opt, norms after", "bert"])
def test_a_state_sees_no_later_token(language, family):
    overrides = as_bert(language, "causal") if family == "bert" else language
    if family == "opt, norms after":
        overrides = [*overrides, "encoder.scratch.do_layer_norm_before=false"]
    parts = build_parts(*overrides)
    module, ids = parts.module.eval(), first_batch(parts)["ids"]
    with torch.no_grad():
        before, labels, _ = module.compute_states(ids, None)
        changed = ids.clone()
        changed[:, 9:] = (changed[:, 9:] + 1) % 200
        after, _, _ = module.compute_states(changed, None)
    assert torch.equal(labels.view(4, 15), ids[:, 1:])
    same = (before - after).abs().view(4, 15, -1).amax(2) < 1e-6
    assert same[:, :9].all()
    assert not same[:, 9:].any()


@pytest.mark.slow
def test_masked_tokens_are_hidden_and_only_they_are_predicted(language):
    parts = build_parts(*as_bert(language, "masked"))
    module, ids = parts.module.eval(), first_batch(parts)["ids"]
    masked = module._mask_alike(torch.arange(4), ids)
    assert torch.equal(masked, module._mask_alike(torch.arange(4), ids))  # in every epoch the same
    assert masked.any(1).all()
    with torch.no_grad():
        states, labels, _ = module.compute_states(ids, masked)
        other = ids.masked_fill(masked, 5)  # what stood there is not seen
        again, _, _ = module.compute_states(other, masked)
        logits = module.model(input_ids=ids.masked_fill(masked, module.mask_id)).logits[masked]
        loss = module.projection.sum_losses(states, labels)
    assert torch.equal(labels, ids[masked])
    torch.testing.assert_close(states, again)
    expected = torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
    assert float(loss) == pytest.approx(float(expected), rel=1e-4)


def test_windows_are_the_text_without_a_gap(language):
    loaders = build_parts(*language).loaders
    tokenizer, ids = loaders.inputs.tokenizer, loaders.train_tokens.ids
    texts = [text for text in make_texts(150, 0)["text"] if text]
    whole = [i for text in texts for i in [*tokenizer(text, add_special_tokens=False)["input_ids"], 2]]
    assert ids.shape[1] == 16
    assert ids.flatten().tolist() == whole[: len(whole) // 16 * 16]
    assert tokenizer.decode(ids.flatten().tolist()).startswith(texts[0])
    assert loaders.sizes == {"train": len(ids), "validation": len(loaders.dev[0].dataset)}


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["causal", "masked"])
def test_a_run_learns_is_verified_and_goes_on_where_it_was_killed(processes, language, tmp_path, objective):
    overrides = language if objective == "causal" else as_bert(language, objective)
    overrides = [*overrides, "optimization.lr=0.01", "trainer.threads=1", "checkpoint.steps=3"]
    assert start(processes, overrides) == 0
    outputs = tmp_path / "outputs"
    whole = outcome(outputs)
    assert list_failures(outputs) == []
    (file,) = outputs.glob("runs/*/result.json")
    record = json.loads(file.read_text())
    losses = [epoch["validation"]["loss"] for epoch in record["history"]]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.8 * math.log(300)
    best = record["best"]["validation"]
    assert best["token_probability"] == pytest.approx(math.exp(-best["loss"]))
    # Embeddings are tied: the vocabulary is the head.
    assert {"embedding/isoscore", "layer_1/isoscore", "head/i1"} <= record["best"]["isotropy"].keys()
    rows = pyarrow.parquet.read_table(file.parent / "predictions.parquet").to_pydict()
    assert sum(rows["prediction"]) / sum(rows["label"]) == pytest.approx(best["loss"])
    if objective == "causal":
        assert set(rows["label"]) == {15}
    again = [text if not text.startswith("output_dir") else f"output_dir={tmp_path / 'again'}" for text in overrides]
    step = "isobench.kinds.language.module.LanguageModel.training_step"
    assert start(processes, again, step, 20, "before") == -signal.SIGKILL
    assert start(processes, again) == 0
    assert outcome(tmp_path / "again") == whole


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["causal", "masked"])
def test_an_exported_model_is_transformers_own_and_can_be_trained_on(language, tmp_path, cli, objective):
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

    overrides = language if objective == "causal" else as_bert(language, objective)
    export = tmp_path / "export"
    record = isobench.run([*overrides, f"checkpoint.export={export}", "optimization.lr=0.01"])
    (folder,) = export.iterdir()
    auto = AutoModelForCausalLM if objective == "causal" else AutoModelForMaskedLM
    assert json.loads((folder / "isobench.json").read_text())["load_with"] == auto.__name__
    model = auto.from_pretrained(folder).eval()
    words = model.get_output_embeddings().weight.detach()
    assert average_cosine(words) == pytest.approx(record.best.isotropy["head/average_cosine"], abs=1e-5)
    assert len(AutoTokenizer.from_pretrained(folder)) == len(words) == 300
    fine_tuning = [
        "task=rotten_tomatoes", "encoder=local", f"encoder.path={export}", "encoder.pooling=mean",
        "task.dev_samples=20", "task.train_samples=20", "optimization.epochs=1", "tracking=none",
        f"output_dir={tmp_path / 'tuned'}", f"data.cache={tmp_path / 'cache'}", "report=false",
    ]  # fmt: skip
    tuned = isobench.run(fine_tuning)
    assert tuned.status == "finished"
    weights = folder / "model.safetensors"
    content = bytearray(weights.read_bytes())
    for code in (2, 0):  # changed, and back
        content[-100] ^= 1
        weights.write_bytes(content)
        assert cli(*fine_tuning, "seed=2", "dry_run=true")[0] == code


def test_a_calibration_changes_the_states_that_the_head_reads(language):
    plain, centred = (build_parts(*language, f"calibration={name}") for name in ("none", "center"))
    assert identify(plain.module.cfg).key != identify(centred.module.cfg).key
    centred.module.log = lambda *_, **__: None
    batch = first_batch(centred, 8)
    loss = centred.module.training_step(batch, 0)
    states, labels, _ = centred.module.compute_states(batch["ids"], None)
    h = states - states.mean(0)
    expected = torch.nn.functional.cross_entropy(h @ centred.module.projection.linear.weight.T, labels)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-4)


def test_coupled_adam_couples_input_and_output_embedding(language):
    for tied, count in (("true", 1), ("false", 2)):
        module = build_parts(*language, f"encoder.scratch.tie_word_embeddings={tied}").module
        assert len({id(matrix) for matrix in module.list_vocabularies()}) == count


def test_models_that_change_their_logits_or_read_the_token_they_predict_are_refused():
    shape = {"vocab_size": 50, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    shape |= {"num_key_value_heads": 2, "intermediate_size": 8}
    scaled = AutoConfig.for_model("granite", **shape, logits_scaling=8.0)
    whole = AutoConfig.for_model("xlm", vocab_size=50, emb_dim=8, n_layers=1, n_heads=2, n_langs=1)
    plain, *wrong = map(AutoModelForCausalLM.from_config, (AutoConfig.for_model("llama", **shape), scaled, whole))
    for require, model in zip((require_plain_logits, require_causal), wrong, strict=True):
        require(plain, "x")
        with fails():
            require(model, "x")


@pytest.mark.parametrize(("length", "windows"), [(64, 6400), (33, 7000), (64, 300)])
def test_measured_states_come_from_every_place_of_a_window(language, length, windows):
    module, loaders, *_ = build_parts(*language)
    loaders.sizes, loaders.max_length = dict.fromkeys(loaders.sizes, windows), length
    model = LoadedGenerator(module.model, 16, 64, [])
    stride = LanguageModel(make_config(*language), model, module.chain, loaders, 1).state_stride
    assert len(set(np.arange(0, windows * (length - 1), stride) % (length - 1))) == length - 1


@pytest.mark.parametrize("setting", ["task.sample_seed=3", "task.held_out=0.1", "optimization.label_smoothing=0.1"])
def test_a_setting_that_would_have_no_effect_is_refused(language, setting):
    with fails():
        validate_config(make_config(*language, setting))
        build_parts(*language, setting)


@pytest.mark.slow
def test_normformer_is_its_equations(language):
    """One layer again in float64, by section 2 of Shleifer et al. (2021)."""
    module = build_parts(*language, "encoder.normformer=true").module.double().eval()
    with torch.no_grad():
        for parameter in module.parameters():  # else all scales are 1 and all biases 0
            parameter.add_(torch.randn(parameter.shape, dtype=torch.float64) * 0.1)
    layer = module.model.model.decoder.layers[0]
    x = torch.randn(1, 5, layer.embed_dim, dtype=torch.float64)
    mask = torch.full((5, 5), -torch.inf, dtype=torch.float64).triu(1)
    with torch.no_grad():
        found = layer(x, attention_mask=mask[None, None])[0].numpy()
    p = {name: value.detach().numpy() for name, value in layer.named_parameters()}
    heads = layer.self_attn.num_heads

    def norm(x, name):
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        return scaled * p[f"{name}.weight"] + p[f"{name}.bias"]

    def linear(x, name):
        return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]

    x = x[0].numpy()
    q, k, v = (linear(norm(x, "self_attn_layer_norm"), f"self_attn.{n}_proj").reshape(5, heads, -1) for n in "qkv")
    scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(q.shape[-1]) + mask.numpy()
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    read = np.einsum("hij,jhd->ihd", weights, v) * p["self_attn.out_proj.0.scale"][:, None]
    x = x + norm(linear(read.reshape(5, -1), "self_attn.out_proj.1"), "self_attn.out_proj.2")
    inner = np.maximum(linear(norm(x, "final_layer_norm"), "fc1"), 0)
    expected = x + linear(norm(inner, "fc2.0"), "fc2.1")
    np.testing.assert_allclose(found.reshape(5, -1), expected, atol=1e-10)


@pytest.mark.slow
def test_states_of_every_layer_are_measured(language):
    parts = build_parts(*language)
    module, ids = parts.module.eval(), first_batch(parts)["ids"]
    with torch.no_grad():
        *_, layers = module.compute_states(ids, None, every_layer=True)
        states = module.model(input_ids=ids, output_hidden_states=True).hidden_states
    assert len(layers) == 2  # before and after the first of two layers
    for own, expected in zip(layers, states, strict=False):
        torch.testing.assert_close(own, expected[:, :-1].flatten(0, 1))


@pytest.mark.slow
@pytest.mark.parametrize("form", ["average", "off_by_one"])
@pytest.mark.parametrize("objective", ["causal", "masked"])
def test_forms_of_attention_are_their_formulas(language, form, objective, monkeypatch):
    overrides = language if objective == "causal" else as_bert(language, objective)
    parts = build_parts(*overrides, f"encoder.attention={form}")
    from transformers import AttentionInterface

    own, seen = AttentionInterface._global_mapping[f"isobench_{form}"], []

    def spy(module, query, key, value, mask, scaling, **more):
        result = own(module, query, key, value, mask, scaling, **more)
        seen[:] = (query, key, value, scaling, *result)
        return result

    monkeypatch.setitem(AttentionInterface._global_mapping, f"isobench_{form}", spy)
    ids = first_batch(parts)["ids"]
    with torch.no_grad():
        parts.module.eval().model(input_ids=ids)
    query, key, value, scaling, output, weights = (np.asarray(x, np.float64) for x in seen)
    T = ids.shape[1]
    may_read = np.tril(np.ones((T, T))) if objective == "causal" else np.ones((T, T))
    scores = np.einsum("bhid,bhjd->bhij", query, key) * scaling if form == "off_by_one" else np.zeros(weights.shape)
    exponentials = np.exp(scores) * may_read
    expected = exponentials / (exponentials.sum(-1, keepdims=True) + (form == "off_by_one"))
    np.testing.assert_allclose(weights, expected, atol=1e-6)
    np.testing.assert_allclose(output, np.einsum("bhij,bhjd->bihd", expected, value), atol=1e-5)


def test_large_scores_do_not_overflow():
    query = torch.full((1, 1, 2, 4), 1e3)
    module = torch.nn.Module().eval()
    for sign, expected in ((1, 0.5), (-1, 0.0)):
        _, weights = attend_off_by_one(module, query, sign * query, query, None, 1.0)
        torch.testing.assert_close(weights, torch.full((1, 1, 2, 2), expected))


def test_frozen_blocks_stay_and_embeddings_learn(language):
    module = build_parts(*language, "encoder.frozen_blocks=true").module
    learns = {name: p.requires_grad for name, p in module.named_parameters()}
    assert all(learns[name] != (".layers." in name) for name in learns)
    assert any("embed_tokens" in name for name in learns)
    assert list(learns.values()).count(False) == 2 * 16  # four projections, two of the feed-forward part, two norms


def test_subsampling_flattens_frequencies(language):
    plain, flat = (build_parts(*language, f"task.language.subsample={t}") for t in ("null", "0.01"))
    shares = [np.sort(np.bincount(p.loaders.train_tokens.ids.flatten()) / p.loaders.train_tokens.ids.size)[::-1]
              for p in (plain, flat)]  # fmt: skip
    assert len(flat.loaders.train_tokens) < len(plain.loaders.train_tokens)
    assert shares[1][0] < shares[0][0]
    ids = np.repeat([0, 1], [99_000, 1_000])
    kept = subsample(ids, 0.01)
    assert (kept == 1).sum() == 1_000  # its share is the threshold
    expected = 99_000 * np.sqrt(0.01 / 0.99)
    assert abs((kept == 0).sum() - expected) < 5 * np.sqrt(expected)
    np.testing.assert_array_equal(kept, subsample(ids, 0.01))
