"""Settings of analyses that can't be: one line that names it and what it may be, before anything is loaded."""

import pytest

from isobench.analyses.subject import Subject

pytestmark = pytest.mark.slow


@pytest.fixture
def nothing_loads(monkeypatch):
    """Whatever an analysis would read of its subjects is an error."""

    def loaded(self):
        raise AssertionError("loaded before the settings were checked")

    for name in ("encoded", "embeddings", "calibrated", "vocabulary"):
        monkeypatch.setattr(Subject, name, loaded)
    for name in ("loaded", "tokenizer", "loaders"):
        monkeypatch.setattr(Subject, name, property(loaded))


MISTAKES = [
    ("isobn_ev", "curve=0", "whole number, at least 1"),
    ("isobn_ev", "curve=2.5", "whole number, at least 1"),
    ("isobn_ev", "curve=true", "whole number, at least 1"),
    ("isobn_embeddings", "bins=0", "whole number, at least 1"),
    ("isobn_embeddings", "strong=0.5", "list of numbers between 0 and 1"),
    ("isobn_embeddings", "strong=[0.5,1]", "list of numbers between 0 and 1"),
    ("isobn_embeddings", "strong=[]", "list of numbers between 0 and 1"),
    ("isobn_embeddings", "strong=[a]", "list of numbers between 0 and 1"),
    ("isobn_embeddings", "threshold=2", "number from 0 to 1"),
    ("isobn_embeddings", "threshold=nan", "number from 0 to 1"),
    ("adaptation_embeddings", "points=1", "whole number, at least 2"),
    ("adaptation_embeddings", "perplexity=0", "number above 0"),
    ("adaptation_embeddings", "perplexity=many", "number above 0"),
    ("adaptation_embeddings", "seed=null", "whole number, at least 0"),
    ("adaptation_embeddings", "seed=4294967296", "at least 0 and at most 4294967295"),
    ("adaptation_embeddings", "within=-1", "number of at least 0"),
    ("common_frequency", "texts=0", "whole number, at least 1"),
    ("common_frequency", "width=wide", "whole number, at least 1"),
    ("common_frequency", "rare=0", "whole number, at least 1"),
    ("common_frequency", "ranges=3", "a list, of {first, end, published} each"),
    ("common_frequency", "ranges=[{first:1,end:5}]", "must have first, end, published"),
    ("common_frequency", "ranges=[{first:5,end:5,published:0}]", "whole number, at least 6"),
    ("common_frequency", "heads=[{types:0,published:x}]", "whole number, at least 1"),
    ("common_frequency", "coverage.share=0", "above 0"),
    ("common_frequency", "coverage.share=98", "number from 0 to 1"),
    ("common_frequency", "ranks=[10]", "two whole numbers, the first below the last"),
    ("common_frequency", "ranks=[10,10]", "two whole numbers, the first below the last"),
    ("common_isotropy", "removed=2", "choose one of: ceil, floor"),
    ("common_isotropy", "toy.points=0", "whole number, at least 1"),
    ("common_isotropy", "toy.shifts=[0,far]", "list of numbers"),
    ("common_isotropy", "~toy.shifts", "must have points, shifts"),
    ("common_wordsim", "removed=-1", "ceil, floor or a whole number, at least 0"),
    ("common_wordsim", "removed=round", "ceil, floor or a whole number, at least 0"),
]


@pytest.mark.parametrize(("experiment", "setting", "said"), MISTAKES)
def test_a_setting_that_cannot_be_is_said_before_anything_is_loaded(
    cli, small, outputs, nothing_loads, experiment, setting, said
):
    override = f"~analysis.{setting[1:]}" if setting.startswith("~") else f"analysis.{setting}"
    code, out, err = cli(f"+experiment={experiment}", *small, override)
    assert (code, out, err.count("\n")) == (2, "", 1)
    name = setting[1:].partition(".")[0] if setting.startswith("~") else setting.partition("=")[0]
    assert err.startswith(f"isobench: analysis.{name}")
    assert said in err
    assert not outputs.exists()


EXPERIMENTS = ("isobn_embeddings", "adaptation_embeddings", "common_isotropy", "common_wordsim", "common_frequency")


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_a_calibration_is_refused_where_it_would_be_ignored(cli, small, outputs, nothing_loads, experiment):
    code, out, err = cli(f"+experiment={experiment}", *small, "calibration=isobn_paper")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"{experiment} looks at embeddings without calibration: leave calibration out" in err
    assert not outputs.exists()


@pytest.mark.parametrize("experiment", ["isobn_ev", "isobn_embeddings", "adaptation_embeddings"])
def test_a_single_example_does_not_vary(cli, small, experiment):
    code, _, err = cli(f"+experiment={experiment}", *small, "encoder.pooling=cls", "task.train_samples=1")
    assert (code, err.count("\n")) == (2, 1)
    assert "the embeddings of local on sst2 do not vary over 1 training example; take more of them" in err


def test_a_layer_that_does_not_vary_leaves_the_others_their_explained_variance(cli, small, outputs):
    """Layer 0 of [CLS] is one vector, its token's and its position's."""
    layers = ["-m", "calibration=none", "encoder.layer=0,1", "encoder.pooling=cls", "task.train_samples=50"]
    code, out, err = cli("+experiment=isobn_ev", *small, *layers)
    assert code == 0, err
    assert out.count("no variance") == 1
    assert "nan/" not in out
    assert (outputs / "reports" / "isobn_ev" / "figure7.png").is_file()
