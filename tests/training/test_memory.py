"""The memory forecast against the peak that torch's allocator reports of real training steps on a CPU."""

from itertools import accumulate

import pytest
import pytorch_lightning as pl
import torch
from helpers import WORDS, make_config, write_parquet
from pytorch_lightning.plugins.environments import LightningEnvironment
from torch._C._profiler import _EventType
from torch.profiler import ProfilerActivity, profile

from isobench.models.skeletons import read_encoder_config
from isobench.runs.identity import identify
from isobench.training.build import build_run_parts
from isobench.training.memory import PARTS, forecast_memory, pretend
from isobench.training.memory_watch import MemoryWatch

LONGER = 60  # words of a text: more tokens than every limit below, so that all texts of a batch are as long
SIZES = {"vocab_size": 2000, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 256}
WIDTH = {"hidden_size": 128, "max_position_embeddings": 64}
SMALL = {
    "bert": SIZES | WIDTH,
    "roberta": SIZES | WIDTH | {"num_hidden_layers": 2},
    "electra": SIZES | WIDTH | {"embedding_size": 64},
    "distilbert": {"vocab_size": 3000, "dim": 96, "n_layers": 4, "n_heads": 4, "hidden_dim": 320},
    "gpt2": {"vocab_size": 1000, "n_embd": 96, "n_layer": 3, "n_head": 6, "n_positions": 64},
}
BART = [
    "encoder=bart-scratch", "encoder.scratch.d_model=96", "encoder.scratch.encoder_layers=2",
    "encoder.vocabulary_size=300", "encoder.scratch.decoder_layers=2", "task=multi30k", "task.generation.beams=1",
    "optimization=seq2seq",
]  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Sentences and translations that are all longer than the limits."""
    root = tmp_path_factory.mktemp("long")
    text = " ".join(WORDS[i % len(WORDS)] for i in range(LONGER))
    for split, n in {"train": 96, "validation": 4}.items():
        columns = {"sentence": [text] * n, "label": [0, 1] * (n // 2)}
        write_parquet(root / "glue" / "sst2" / f"{split}.parquet", columns)
        translations = [{"en": f"{text} {i}", "de": f"{text[::-1]} {i}"} for i in range(n)]
        write_parquet(root / "multi30k" / f"{split}.parquet", {"translation": translations})
    return str(root)


def save_model(folder, kind):
    """Save a randomly initialised model of an architecture, with a word-level tokenizer."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast

    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    names = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=50, **names).save_pretrained(folder)
    AutoModel.from_config(AutoConfig.for_model(kind, pad_token_id=0, **SMALL[kind])).save_pretrained(folder)


def measure_peak(cfg):
    """The most bytes that torch's allocator held during Lightning's training, with the weights."""
    module, loaders = build_run_parts(cfg, identify(cfg))[:2]
    trainer = pl.Trainer(
        accelerator="cpu", max_steps=3, logger=False, precision=cfg.trainer.precision, limit_val_batches=0,
        gradient_clip_val=cfg.optimization.clip, accumulate_grad_batches=cfg.optimization.accumulate,
        plugins=[LightningEnvironment()], enable_checkpointing=False, enable_model_summary=False,
        enable_progress_bar=False,
    )  # fmt: skip
    kept = {x.data_ptr(): x.nbytes for x in [*module.parameters(), *module.buffers()]}
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
        trainer.fit(module, loaders.train)
    assert trainer.global_step == 3
    waiting, changes = list(watched.profiler.kineto_results.experimental_event_tree()), []
    while waiting:
        event = waiting.pop()
        waiting += event.children
        if event.tag == _EventType.Allocation:
            changes.append((event.start_time_ns, event.extra_fields.alloc_size))
    return sum(kept.values()) + max(accumulate(size for _, size in sorted(changes)))


def check_forecast(*overrides):
    cfg = make_config(*overrides)
    parts = forecast_memory(cfg, read_encoder_config(cfg.encoder), on_gpu=False)
    assert set(parts) <= set(PARTS)
    # The profiler may lose events, and the measured peak is then too low: the largest of three counts.
    assert parts.total() == pytest.approx(max(measure_peak(cfg) for _ in range(3)), rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("bert", ["calibration=spectrum_polynomial", "calibration.target=vocabulary", "optimization.batch_size=4"]),
        ("bert", ["encoder.first_token_only=false", "encoder.gradient_checkpointing=true", "task.max_length=50"]),
        ("roberta", ["head=huggingface", "trainer.precision=bf16-mixed", "optimization.clip=1.0"]),
        ("electra", ["head=huggingface", "calibration=flow", "task.max_length=16"]),
        ("distilbert", ["encoder.pooling=mean", "calibration=whitening_zca", "optimization.accumulate=2"]),
        ("gpt2", ["encoder.pooling=last", "calibration=cosine", "calibration.target=vocabulary"]),
        ("bert", ["calibration=istar", "calibration.scope=tokens", "trainer.dropout=torch"]),
    ],
)
def test_a_classifiers_peak(kind, settings, data, cache, tmp_path):
    save_model(tmp_path / "model", kind)
    folders = ["encoder=local", f"encoder.path={tmp_path / 'model'}", f"data.root={data}", f"data.cache={cache}"]
    pooling = [] if "encoder.pooling" in str(settings) else ["encoder.pooling=cls"]
    check_forecast("task=sst2", *folders, *pooling, "task.max_length=40", "optimization.batch_size=16", *settings)


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        ["optimization.batch_size=24"],
        ["trainer.precision=bf16-mixed", "+encoder.scratch.vocab_size=3000", "optimization.clip=1.0"],
        ["calibration=spectrum_exponential", "+encoder.scratch.vocab_size=6000", "optimization.batch_size=2"],
        ["encoder.gradient_checkpointing=true", "optimization.accumulate=2"],
    ],
)
def test_a_translations_peak(settings, data, cache):
    folders = [f"data.root={data}", f"data.cache={cache}"]
    check_forecast(*BART, *folders, "task.max_length=40", "task.generation.max_length=24", *settings)


def forecast_layers(layers, *overrides):
    """The forecast on a GPU of a BERT of 768 columns in which no layer is restricted to the first token."""
    from transformers import BertConfig

    cfg = make_config("scale=paper", "encoder.first_token_only=false", *overrides)
    return forecast_memory(cfg, BertConfig(num_hidden_layers=layers))


@pytest.mark.slow
def test_a_layer_keeps_on_a_gpu_what_korthikanti_et_al_count():
    """Korthikanti et al. 2022: 34 s b h bytes in half precision, without the matrix of attention weights.

    Of these, 2 s b h are masks of dropout, one byte an entry, and the others become twice as many in float32. A layer
    also keeps its mask of numbers [b, 1, s, s] and the softmax's normaliser [b, heads, s].
    """
    b, s, h, heads = 32, 256, 768, 12
    layer = forecast_layers(3)["activations"] - forecast_layers(2)["activations"]
    assert layer == pytest.approx((2 * 32 + 2) * s * b * h + 4 * b * s * s + 4 * b * heads * s, rel=0.001)


@pytest.mark.slow
def test_settings_change_the_parts_that_they_concern():
    plain, o = forecast_layers(2), "optimization."
    parameters = plain["gradients"] / 4
    assert plain["optimiser"] == pytest.approx(2 * plain["gradients"], rel=1e-2)
    assert parameters == pytest.approx((30522 + 512 + 2 + 2 * 12 * 768 + 768) * 768, rel=0.002)  # and biases, norms
    half = forecast_layers(2, f"{o}batch_size=16")
    assert half["activations"] == pytest.approx(plain["activations"] / 2, rel=0.01)
    assert forecast_layers(2, "encoder.gradient_checkpointing=true")["activations"] < plain["activations"] / 2
    mixed = [forecast_layers(2, f"trainer.precision={name}-mixed")["activations"] for name in ("bf16", "16")]
    assert mixed[0] == mixed[1]
    assert 0.5 < mixed[0] / plain["activations"] < 0.8


METHODS = (
    "istar isobn_released batch_norm gradient_norm fixed_norm_l2 center_scaled all_but_the_top isobn_original".split()
)


@pytest.mark.slow
def test_other_methods_have_a_forecast():
    from transformers import BertConfig

    config = BertConfig(**SIZES | WIDTH | {"num_hidden_layers": 1})
    for name in METHODS:
        cfg = make_config("scale=paper", f"calibration={name}", "optimization.batch_size=2")
        assert forecast_memory(cfg, config)["weights"] > 0


def test_the_watch_finds_the_peak_and_who_has_it():
    """Bytes by hand: 400 stay, 800 and 1600 live together, 1600 alone later."""
    with pretend(MemoryWatch(block=1), on_gpu=False) as watch:
        with watch.labelled("activations"):
            kept = torch.empty(100)
            view = kept.view(10, 10)
        a = torch.empty(200)
        b = torch.empty(400)
        del a
        kept.relu_()
        del b
        c = torch.empty(400)
    assert watch.measure_peak() == {"activations": 400, "workspace": 800 + 1600}
    assert len(view) + len(c) == 410


def test_values_that_a_step_reads_look_harmless():
    with pretend(MemoryWatch(), on_gpu=False):
        assert (torch.ones(()).mul(3).item(), int(torch.zeros((), dtype=torch.long) + 3)) == (1.0, -1)
        assert not bool(torch.zeros(()) < 1)
