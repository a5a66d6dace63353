"""A wrong setting of an analysis ends in one line that names it and what it must be, before anything is loaded."""

import pytest

from isobench.analyses.subject import Subject

pytestmark = pytest.mark.slow


@pytest.fixture
def nothing_loads(monkeypatch):
    """Make everything that an analysis could load of its subjects an error."""

    def loaded(self):
        raise AssertionError("loaded before the settings were checked")

    for name in ("encoded", "embeddings", "calibrated", "vocabulary"):
        monkeypatch.setattr(Subject, name, loaded)
    for name in ("loaded", "tokenizer", "loaders"):
        monkeypatch.setattr(Subject, name, property(loaded))


MISTAKES = [
    ("isobn_ev", "curve=0", "curve=0 must be at least 1"),
    ("isobn_ev", "curve=2.5", "curve=2.5 must be a whole number, at least 1"),
    ("isobn_ev", "curve=true", "curve=True must be a whole number, at least 1"),
    ("isobn_embeddings", "bins=0", "bins=0 must be at least 1"),
    ("isobn_embeddings", "strong=0.5", "strong=0.5 must be a list [A,B,...], each entry a number, between 0 and 1"),
    ("isobn_embeddings", "strong=[0.5,1]", "strong[1]=1 must be between 0 and 1"),
    ("isobn_embeddings", "strong=[]", "strong=[] must have at least one entry"),
    ("isobn_embeddings", "strong=[a]", "strong[0]=a must be a number, between 0 and 1"),
    ("isobn_embeddings", "threshold=2", "threshold=2 must be at most 1"),
    ("isobn_embeddings", "threshold=nan", "threshold=nan must be a number, at least 0 and at most 1"),
    ("adaptation_embeddings", "points=1", "points=1 must be at least 2"),
    ("adaptation_embeddings", "perplexity=0", "perplexity=0 must be above 0"),
    ("adaptation_embeddings", "perplexity=many", "perplexity=many must be a number, above 0"),
    ("adaptation_embeddings", "seed=null", "seed=null must be a whole number, at least 0 and at most 4294967295"),
    ("adaptation_embeddings", "seed=4294967296", "seed=4294967296 must be at most 4294967295"),
    ("adaptation_embeddings", "within=-1", "within=-1 must be at least 0"),
    ("adaptation_embeddings", "cluster_share=1", "cluster_share=1 must be between 0 and 1"),
    ("common_frequency", "texts=0", "texts=0 must be at least 1"),
    ("common_frequency", "width=wide", "width=wide must be a whole number, at least 1"),
    ("common_frequency", "rare=0", "rare=0 must be at least 1"),
    ("common_frequency", "ranges=3", "each entry a mapping with exactly the keys first, end, published"),
    ("common_frequency", "ranges=[{first:1,end:5}]", "must be a mapping with exactly the keys first, end, published"),
    ("common_frequency", "ranges=[{first:5,end:x,published:0}]", "ranges[0].end=x must be a whole number"),
    ("common_frequency", "ranges=[{first:5,end:5,published:0}]", "must have its end above its first"),
    ("common_frequency", "heads=[{types:0,published:x}]", "heads[0].types=0 must be at least 1"),
    ("common_frequency", "coverage.share=0", "coverage.share=0 must be above 0"),
    ("common_frequency", "coverage.share=98", "coverage.share=98 must be at most 1"),
    ("common_frequency", "ranks=[10]", "two whole numbers, the first below the last"),
    ("common_frequency", "ranks=[10,10]", "two whole numbers, the first below the last"),
    ("common_isotropy", "removed=2", "removed=2 is not known: choose one of: ceil, floor"),
    ("common_isotropy", "toy.points=0", "toy.points=0 must be at least 1"),
    ("common_isotropy", "toy.shifts=[0,far]", "toy.shifts[1]=far must be a number"),
    ("common_wordsim", "removed=-1", "ceil, floor or a whole number, at least 0"),
    ("common_wordsim", "removed=round", "ceil, floor or a whole number, at least 0"),
]


@pytest.mark.parametrize(("experiment", "setting", "message"), MISTAKES)
def test_a_wrong_setting_is_named_before_anything_is_loaded(
    cli, small, outputs, nothing_loads, experiment, setting, message
):
    override = f"~analysis.{setting[1:]}" if setting.startswith("~") else f"analysis.{setting}"
    code, out, err = cli(f"+experiment={experiment}", *small, override)
    assert (code, out, err.count("\n")) == (2, "", 1)
    name = setting[1:].partition(".")[0] if setting.startswith("~") else setting.partition("=")[0]
    assert err.startswith(f"isobench: analysis.{name}")
    assert message in err
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
