"""Shared pieces: configs, a tiny model and tiny data made on the spot, the command line run in this process."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["WANDB_MODE"] = "offline"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra

from isobench import __main__ as entry
from isobench.common.resources import conf_dir
from isobench.config.schema import Config, register_schema, to_config

WORDS = "the a film plot cast was is and of it very quite so good great bad awful fine dull sharp".split()


def make_config(*overrides: str) -> Config:
    register_schema()
    GlobalHydra.instance().clear()
    with initialize_config_dir(conf_dir(), version_base="1.3"):
        return to_config(compose("config", overrides=["tracking=none", *overrides]))


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """One cache for the whole session: the packaged DistilBERT is converted once."""
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def glue() -> str:
    """The real GLUE files, where there are any."""
    root = os.environ.get("ISOBENCH_DATA")
    if not root or not (Path(root) / "glue").is_dir():
        pytest.skip("ISOBENCH_DATA does not name a folder with glue/<task>/<split>.parquet")
    return root


@pytest.fixture(scope="session")
def papers() -> Path:
    """The folder with the papers' texts, where there is one."""
    folder = os.environ.get("ISOBENCH_PAPERS")
    if not folder or not Path(folder).is_dir():
        pytest.skip("ISOBENCH_PAPERS does not name a folder with the papers' texts")
    return Path(folder)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> str:
    """A randomly initialised two-layer BERT with a word-level tokenizer, as a transformers folder."""
    folder = tmp_path_factory.mktemp("tiny")
    save_tiny(folder)
    return str(folder)


def save_tiny(folder: Path, architecture: str = "bert") -> None:
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, GPT2Config, GPT2Model, PreTrainedTokenizerFast

    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"unk_token": "[UNK]", "model_max_length": 40}
    torch.manual_seed(0)
    if architecture == "bert":
        tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
        special |= {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
        special |= {"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}
        model = BertModel(
            BertConfig(
                vocab_size=len(vocabulary), hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                intermediate_size=48, max_position_embeddings=40, initializer_range=0.3,
                hidden_dropout_prob=0.02, attention_probs_dropout_prob=0.02,
            )
        )  # fmt: skip
    else:
        special |= {"eos_token": "[SEP]"}
        model = GPT2Model(GPT2Config(vocab_size=len(vocabulary), n_embd=32, n_layer=2, n_head=2, n_positions=40))
    model.save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)


def write_parquet(file: Path, columns: dict) -> None:
    import pyarrow
    import pyarrow.parquet

    file.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.table(columns), file)


def review_columns(n: int, seed: int) -> dict:
    """Sentences that are positive exactly if they hold 'good' or 'great'; lengths from 3 to 20 words."""
    import numpy as np

    rng = np.random.default_rng(seed)
    plain = [w for w in WORDS if w not in ("good", "great", "bad", "awful")]
    sentences, labels = [], []
    for _ in range(n):
        words = rng.choice(plain, rng.integers(2, 20)).tolist()
        label = int(rng.integers(2))
        words.insert(
            int(rng.integers(len(words) + 1)), str(rng.choice(["good", "great"] if label else ["bad", "awful"]))
        )
        sentences.append(" ".join(words))
        labels.append(label)
    return {"sentence": sentences, "label": labels, "idx": list(range(n))}


@pytest.fixture(scope="session")
def reviews(tmp_path_factory) -> str:
    """A data.root with a small sst2."""
    root = tmp_path_factory.mktemp("data")
    for seed, (split, n) in enumerate({"train": 160, "validation": 60}.items()):
        write_parquet(root / "glue" / "sst2" / f"{split}.parquet", review_columns(n, seed))
    return str(root)


@pytest.fixture
def small(tiny, reviews, cache, tmp_path):
    """Overrides of a run that takes about a second."""
    return tiny_overrides(tiny, reviews, cache, tmp_path / "outputs")


def tiny_overrides(tiny: str, reviews: str, cache: str, outputs: Path) -> list[str]:
    return [
        "task=sst2", f"data.root={reviews}", f"data.cache={cache}", "encoder=local", f"encoder.path={tiny}",
        f"output_dir={outputs}", "tracking=none", "optimization.epochs=2", "optimization.batch_size=16",
        "optimization.lr=3e-3",
    ]  # fmt: skip


@pytest.fixture
def command(monkeypatch, capfd):
    """Run a command's main function in this process: returns exit code, standard output, standard error."""

    def run(main: Callable[[], object], *arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["isobench", *arguments])
        monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)
        GlobalHydra.instance().clear()
        capfd.readouterr()
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        output = capfd.readouterr()
        return code, output.out, output.err

    return run


@pytest.fixture
def cli(command):
    """The same for ``python -m isobench``."""
    return partial(command, entry.main)


def files_with(folder: Path, *texts: str) -> list[Path]:
    """The files in a folder that hold one of the texts."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert files
    return [file for file in files if any(text.encode() in file.read_bytes() for text in texts)]


@pytest.fixture
def outputs(tmp_path):
    """The small run's output folder; removed with the test."""
    yield tmp_path / "outputs"
    shutil.rmtree(tmp_path / "outputs", ignore_errors=True)


def translation_columns(n: int, seed: int) -> dict:
    """English-like sentences of 2 to 9 words, and the same words backwards, spelt backwards."""
    import numpy as np

    rng = np.random.default_rng(seed)
    english = [" ".join(rng.choice(WORDS, rng.integers(2, 10))) for _ in range(n)]
    return {"translation": [{"en": sentence, "de": sentence[::-1]} for sentence in english]}


@pytest.fixture(scope="session")
def translations(tmp_path_factory) -> str:
    """A data.root with a small multi30k."""
    root = tmp_path_factory.mktemp("translations")
    for seed, (split, n) in enumerate({"train": 96, "validation": 20}.items()):
        write_parquet(root / "multi30k" / f"{split}.parquet", translation_columns(n, seed))
    return str(root)


SCRATCH = [
    "encoder=bart-scratch", "encoder.scratch.d_model=32", "encoder.scratch.encoder_ffn_dim=48",
    "encoder.scratch.decoder_ffn_dim=48", "encoder.scratch.encoder_attention_heads=2",
    "encoder.scratch.decoder_attention_heads=2", "encoder.vocabulary_size=300",
]  # fmt: skip


@pytest.fixture
def tiny_translation(translations, cache, tmp_path):
    """Overrides of a translation run that takes about two seconds."""
    return translation_overrides(translations, cache, tmp_path / "outputs")


def translation_overrides(translations: str, cache: str, outputs: Path) -> list[str]:
    return [
        "task=multi30k", f"data.root={translations}", f"data.cache={cache}", *SCRATCH, "optimization=seq2seq",
        f"output_dir={outputs}", "tracking=none", "optimization.epochs=2", "optimization.batch_size=16",
        "task.generation.max_length=24", "task.generation.beams=2",
    ]  # fmt: skip
