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
    print(overrides[-1], parts.total() / measure_peak(cfg))
    assert parts.total() == pytest.approx(measure_peak(cfg), rel=0.2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("bert", ["calibration=isobn_paper", "optimization.batch_size=32"]),
        ("bert", ["calibration=spectrum_polynomial", "calibration.target=vocabulary", "optimization.batch_size=4"]),
        ("bert", ["encoder.first_token_only=false", "encoder.gradient_checkpointing=true", "task.max_length=50"]),
        ("roberta", ["head=huggingface", "trainer.precision=bf16-mixed", "optimization.clip=1.0"]),
        ("electra", ["head=huggingface", "calibration=flow", "task.max_length=16"]),
        ("distilbert", ["encoder.pooling=mean", "calibration=whitening_zca", "optimization.accumulate=2"]),
        ("gpt2", ["encoder.pooling=last", "calibration=cosine", "calibration.target=vocabulary"]),
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
        ["trainer.precision=bf16-mixed", "encoder.vocabulary_size=3000", "+encoder.scratch.vocab_size=3000"],
        ["calibration=spectrum_exponential", "+encoder.scratch.vocab_size=6000", "optimization.batch_size=2"],
        ["calibration=flow", "encoder.gradient_checkpointing=true", "optimization.accumulate=2"],
    ],
)
def test_a_translations_peak(settings, data, cache):
    folders = [f"data.root={data}", f"data.cache={cache}"]
    check_forecast(*BART, *folders, "task.max_length=40", "task.generation.max_length=24", *settings)
