"""Analyses of single dimensions: Fisher score, correlation, clusters, and the two experiments that draw them."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest
import torch
from helpers import write_parquet
from sklearn.feature_selection import f_classif

from isobench.common.errors import UserError
from isobench.metrics import block_diagonal, clusters_of, correlation_of, fisher_score
from isobench_papers.isobn import embeddings as isobn_embeddings
from isobench_papers.task_adaptation import embeddings as adaptation_embeddings


@pytest.fixture
def rng() -> np.random.Generator:
    """The same numbers whichever tests are run."""
    return np.random.default_rng(0)


class TestFisherScore:
    def test_is_equation_1_summed_by_hand(self, rng):
        h, labels = rng.normal(size=(40, 5)) * [1, 2, 3, 4, 1e-3] + 7, rng.choice([0, 2, 5], 40)
        expected = []
        for j in range(5):
            between = within = 0.0
            for k in (0, 2, 5):
                values = [h[i, j] for i in range(40) if labels[i] == k]
                centre = sum(values) / len(values)
                between += len(values) * (centre - sum(h[:, j]) / 40) ** 2
                within += len(values) * sum((value - centre) ** 2 for value in values) / len(values)
            expected.append(between / within)
        assert fisher_score(torch.tensor(h), torch.tensor(labels)).tolist() == pytest.approx(expected, rel=1e-9)

    def test_is_the_f_statistic_but_for_its_degrees_of_freedom(self, rng):
        h, labels = rng.normal(size=(300, 8)).astype(np.float32) + 100, rng.integers(3, size=300)
        f = f_classif(h.astype(np.float64), labels)[0]
        ours = fisher_score(torch.tensor(h), torch.tensor(labels)).numpy()
        np.testing.assert_allclose(ours * (300 - 3) / (3 - 1), f, rtol=1e-8)

    def test_of_two_pairs(self):
        h = torch.tensor([[0.0, 5.0], [2.0, 5.0], [4.0, 6.0], [6.0, 6.0]])
        # means 1 and 5 around 3: 2*4 + 2*4 = 16; within 1+1+1+1 = 4. The second is constant within the classes.
        assert fisher_score(h, torch.tensor([0, 0, 1, 1])).tolist() == [4.0, torch.inf]

    def test_of_a_constant_dimension_is_0(self):
        h = torch.tensor([[0.1, 1.0], [0.1, 2.0], [0.1, 4.0]], dtype=torch.float32)
        assert fisher_score(h, torch.tensor([0, 1, 1]))[0] == 0

    def test_of_an_undefined_dimension_is_undefined(self):
        h = torch.tensor([[0.1, 1.0], [torch.nan, 2.0], [0.1, 4.0]])
        assert fisher_score(h, torch.tensor([0, 1, 1])).isnan().tolist() == [True, False]

    def test_of_one_class_is_0(self):
        assert fisher_score(torch.randn(20, 4), torch.full((20,), 3)).tolist() == [0] * 4

    @pytest.mark.parametrize(("h", "labels"), [((0, 3), (0,)), ((4, 3), (3,)), ((4,), (4,)), ((4, 3), (4, 1))])
    def test_of_other_shapes_is_an_error(self, h, labels):
        with pytest.raises(ValueError, match="Fisher score"):
            fisher_score(torch.zeros(h), torch.zeros(labels, dtype=torch.long))


def planted(
    rng: np.random.Generator, sizes: tuple[int, ...], noise: float = 0.3, n: int = 500
) -> tuple[np.ndarray, np.ndarray]:
    """Vectors [n, d] with groups of dimensions that repeat each other, with either sign, shuffled; and the groups."""
    groups = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    signs = rng.choice([-1, 1], len(groups))
    common = rng.normal(size=(n, len(sizes)))
    return signs * (common[:, groups] + noise * rng.normal(size=(n, len(groups)))), groups


def correlation(h: np.ndarray) -> torch.Tensor:
    return correlation_of(torch.tensor(np.cov(h.T, bias=True)))


class TestCorrelation:
    def test_is_pearsons(self, rng):
        h = rng.normal(size=(50, 6)) @ rng.normal(size=(6, 6)) * 10.0 ** np.arange(-3, 3)
        np.testing.assert_allclose(correlation(h).numpy(), np.corrcoef(h.T), atol=1e-12)

    def test_of_constant_dimensions_is_the_identity(self, rng):
        h = rng.normal(size=(50, 4))
        h[:, [1, 3]] = 0.25
        rho = correlation(h)
        assert rho[1].tolist() == [0, 1, 0, 0]
        assert rho[3].tolist() == [0, 0, 0, 1]
        assert rho[0, 2] == pytest.approx(np.corrcoef(h[:, 0], h[:, 2])[0, 1])

    def test_never_is_above_1(self, rng):
        x = rng.normal(size=(50, 1)) * 1e-9
        rho = correlation(np.hstack([x, 3 * x, -7 * x]))
        assert rho.abs().max() == 1
        assert torch.equal(rho, rho.T)


class TestClusters:
    def test_find_the_planted_groups_whatever_the_signs(self, rng):
        h, groups = planted(rng, (5, 9, 2, 1))
        order, found = clusters_of(correlation(h), 0.5)
        assert sorted(order) == list(range(17))
        assert np.array_equal(block_diagonal(found), block_diagonal(groups))
        assert np.bincount(found).tolist() == [0, 9, 5, 2, 1]  # the largest first

    def test_order_puts_a_group_together(self, rng):
        h, groups = planted(rng, (5, 9, 2, 1))
        order, _ = clusters_of(correlation(h), 0.5)
        assert np.count_nonzero(np.diff(groups[order])) == 3  # from each group to the next, once

    def test_assumption_is_the_real_matrix_of_duplicated_dimensions(self, rng):
        h, _ = planted(rng, (3, 4), noise=0.0, n=100_000)
        rho = correlation(h)
        order, found = clusters_of(rho, 0.9)
        blocks = block_diagonal(found[order])
        np.testing.assert_allclose(rho.abs().numpy()[np.ix_(order, order)], blocks, atol=0.02)
        first = int(np.sum(found == found[order[0]]))
        assert blocks[:first, :first].all()
        assert not blocks[:first, first:].any()

    def test_threshold_0_joins_all_and_constants_stand_alone(self, rng):
        h, _ = planted(rng, (4, 4))
        assert set(clusters_of(correlation(h), 0.0)[1]) == {1}
        h[:, 2:4] = 1.0
        found = clusters_of(correlation(h), 0.3)[1]
        assert np.bincount(found)[found[2:4]].tolist() == [1, 1]


def stub(h: np.ndarray, labels: np.ndarray | None = None) -> SimpleNamespace:
    """A subject with these vectors."""
    vectors = torch.tensor(h, dtype=torch.float32)
    cfg = SimpleNamespace(task=SimpleNamespace(labels=["no", "yes"], as_classes=None))
    functions = {"embeddings": lambda: vectors, "encoded": lambda: vectors, "labels": lambda: labels}
    return SimpleNamespace(encoder="some", task="one", cfg=cfg, **functions)


class TestDimensions:
    def test_of_planted_groups(self, rng):
        h, _ = planted(rng, (6, 3, 1), noise=0.1)
        h[:, 0] = 2.0
        dims = isobn_embeddings.measure_dimensions(stub(h * 10.0 ** np.linspace(-5, 0, 10)), 0.5)
        row = isobn_embeddings.summarise_dimensions(dims, [0.5])
        assert (row["constant"], row["dimensions"], row["examples"]) == (1, 10, 500)
        assert row["std_min"] == pytest.approx(dims.deviation[1:].min())
        assert row["clusters"] == 4  # the constant one alone
        pairs = np.abs(np.corrcoef(h[:, 1:].T))[np.triu_indices(9, 1)]
        assert row["mean_correlation"] == pytest.approx(pairs.sum() / 45, abs=1e-4)
        assert row["share_above_0.5"] == pytest.approx((pairs > 0.5).sum() / 45)
        assert row["mean_off_blocks"] < row["mean_correlation"] / 3
        assert row["geometric_spread"] == pytest.approx(np.exp(np.std(np.log(dims.deviation[1:]))))

    def test_a_figure_says_how_many_are_constant(self, rng):
        h = rng.normal(size=(50, 6)) * 10.0 ** -np.arange(6)
        h[:, 4:] = 0.3
        figure = isobn_embeddings.draw_figure4([isobn_embeddings.measure_dimensions(stub(h), 0.5)], 20)
        (axis,) = figure.axes
        assert axis.get_xscale() == "log"
        assert "2 of 6 constant" in axis.texts[0].get_text()
        assert sum(bar.get_height() for bar in axis.patches) == pytest.approx(100 * 4 / 6)

    def test_numbers_of_figure_6_are_above_its_panels_and_not_in_labels_of_axes(self, rng):
        h, _ = planted(rng, (6, 3, 1), noise=0.1)
        dims = isobn_embeddings.measure_dimensions(stub(h), 0.5)
        row = isobn_embeddings.summarise_dimensions(dims, [0.5])
        panels = isobn_embeddings.draw_figure6([dims], [row], 0.5).axes[:3]
        assert [panel.get_xlabel() for panel in panels] == ["dimension (clustered)"] * 3
        assert [panel.get_title() for panel in panels] == ["batch normalisation assumes", "IsoBN assumes", "real"]
        texts = [text.get_text() for panel in panels for text in panel.texts]
        assert [text.splitlines()[-1] for text in texts] == [
            f"{row['mean_correlation']:.2f} off on average",
            f"{row['mean_off_blocks']:.2f} off on average",
            f"{row['mean_correlation']:.2f} on average",
        ]
        assert texts[1].startswith("3 clusters")

    def test_vectors_that_do_not_vary_are_an_error(self):
        with pytest.raises(UserError, match="do not vary"):
            isobn_embeddings.measure_dimensions(stub(np.ones((9, 4))), 0.5)
        with pytest.raises(UserError, match="do not vary"):
            adaptation_embeddings.measure_distribution(stub(np.ones((9, 4)), np.zeros(9, np.int64)), 9, 3, 1, 0.05)


class TestDistribution:
    @pytest.mark.slow
    def test_orders_by_fisher_score_and_counts_means(self, rng):
        labels = np.arange(200) % 2
        h = rng.normal(size=(200, 4)) * [1, 9, 3, 1] + labels[:, None] * [0, 0, 30, 4] + [3, 0.0, -15.0, -2.2]
        part = adaptation_embeddings.measure_distribution(stub(h, labels), 50, 5, 1, 0.05)
        row = adaptation_embeddings.summarise_distribution(part, 0.5)
        assert part.importance_order[:2].tolist() == [2, 3]
        assert row["means_within"] == int((np.abs(h.mean(0)) <= 0.5).sum())
        assert (row["largest_mean_dimension"], row["std_max_dimension"]) == (0, 2)
        assert row["std_max_fisher_rank"] == 1
        assert part.plotted.tolist() == list(range(0, 200, 4))

    @pytest.mark.slow
    def test_spearman_leaves_constant_dimensions_out(self, rng):
        labels = np.arange(200) % 2
        h = rng.normal(size=(200, 6)) + labels[:, None] * np.array([5, 4, 3, 0, 0, 0])
        h[:, 3:] = 1.0
        spearman = adaptation_embeddings.summarise_distribution(
            adaptation_embeddings.measure_distribution(stub(h, labels), 50, 5, 1, 0.05), 0.5
        )
        assert spearman["constant"] == 3
        assert spearman["spearman"] == pytest.approx(1)  # more apart, more varied: three dimensions, in one order

    @pytest.mark.slow
    def test_tsne_separates_what_is_apart_and_is_the_same_again(self, rng):
        h = torch.tensor(rng.normal(size=(60, 10)) + 50 * (np.arange(60) % 2)[:, None], dtype=torch.float32)
        plane = adaptation_embeddings.tsne(h, 10, 1)
        even, odd = plane[::2], plane[1::2]
        between = np.linalg.norm(even.mean(0) - odd.mean(0))
        assert between > 2 * np.linalg.norm(even - even.mean(0), axis=1).max()
        assert np.array_equal(plane, adaptation_embeddings.tsne(h, 10, 1))

    @pytest.mark.parametrize("perplexity", [0, 60])
    def test_perplexity_is_below_the_number_of_points(self, perplexity):
        with pytest.raises(UserError, match="perplexity"):
            adaptation_embeddings.tsne(torch.randn(60, 4), perplexity, 1)


@pytest.fixture
def setting(tiny, reviews, tmp_path) -> list[str]:
    """Overrides for the tiny encoder on the small data, with a cache of its own."""
    own = ["data.cache=" + str(tmp_path / "cache"), f"output_dir={tmp_path}", "tracking=none"]
    return ["encoder=local", f"encoder.path={tiny}", "task=sst2", f"data.root={reviews}", *own]


def written(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name != "about.json"}


def check_files(folder: Path, numbers: set[str], figures: dict[str, str]) -> None:
    """All files there, the two forms of the numbers equal, no empty figure (a label that it has)."""
    files = written(folder)
    expected = {f"{name}.{kind}" for name in numbers for kind in ("csv", "parquet")}
    expected |= {f"{name}.{kind}" for name in figures for kind in ("png", "svg")}
    assert set(files) == expected | {"tables.txt"}
    for name in numbers:
        table = pyarrow.parquet.read_table(folder / f"{name}.parquet")
        assert table.num_rows
        assert pyarrow.csv.read_csv(folder / f"{name}.csv").to_pylist() == table.to_pylist()
    for name, label in figures.items():
        assert files[f"{name}.png"].startswith(b"\x89PNG")
        assert len(files[f"{name}.png"]) > 5000
        assert f">{label}<" in files[f"{name}.svg"].decode()


def embedded(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache" / "embeddings").glob("*.npy"))


def columns(folder: Path, *names: str) -> list[np.ndarray]:
    table = pyarrow.csv.read_csv(folder / "dimensions.csv")
    return [table[name].to_numpy() for name in names]


@pytest.mark.slow
def test_isobn_embeddings(cli, setting, tmp_path):
    """The whole command, after isobn_ev, whose embeddings it shares; the same bytes again."""
    assert cli("+experiment=isobn_ev", *setting)[0] == 0
    (file,) = embedded(tmp_path)
    code, out, err = cli("+experiment=isobn_embeddings", *setting)
    assert code == 0, err
    assert embedded(tmp_path) == [file]  # nothing was embedded again
    assert "NOT the paper's setting" in out
    assert "[1e-10, 1]" in out
    folder = tmp_path / "reports" / "isobn_embeddings"
    labels = {"figure4": "standard deviation", "figure5": "dimension (clustered)", "figure6": "IsoBN assumes"}
    check_files(folder, {"summary", "dimensions", "clusters"}, labels)
    std, place, cluster = columns(folder, "std", "place", "cluster")
    np.testing.assert_allclose(std, np.load(file).astype(np.float64).std(0), rtol=1e-10)
    assert sorted(place) == list(range(32))
    sizes = pyarrow.csv.read_csv(folder / "clusters.csv")["size"].to_pylist()
    assert np.bincount(cluster)[1:].tolist() == sizes == sorted(sizes, reverse=True)
    first = written(folder)
    assert cli("+experiment=isobn_embeddings", *setting)[0] == 0
    assert written(folder) == first


@pytest.mark.slow
def test_adaptation_embeddings(cli, setting, tiny, reviews, tmp_path):
    """The whole command with a pooler; h^l is what goes into it and h what comes out; the same bytes again."""
    from transformers import BertModel

    arguments = ["+experiment=adaptation_embeddings", *setting, "encoder.pooling=pooler", "analysis.points=100"]
    code, out, err = cli(*arguments)
    assert code == 0, err
    assert "without a pooler" not in out
    folder = tmp_path / "reports" / "adaptation_embeddings"
    figures = {"figure1": "t-SNE 2", "figure2": "mean", "figure3": "standard deviation"}
    check_files(folder, {"summary", "dimensions", "tsne"}, figures)
    (file,) = embedded(tmp_path)
    before = torch.tensor(np.load(file))
    dense = BertModel.from_pretrained(tiny).pooler.dense
    after = torch.tanh(before @ dense.weight.T + dense.bias).detach().double().numpy()
    mean, std, fisher, rank = columns(folder, "mean", "std", "fisher", "fisher_rank")
    np.testing.assert_allclose(mean, before.double().numpy().mean(0), rtol=1e-6)
    np.testing.assert_allclose(std, after.std(0), rtol=1e-4)
    labels = pyarrow.parquet.read_table(Path(reviews) / "glue" / "sst2" / "train.parquet")["label"].to_numpy()
    np.testing.assert_allclose(fisher * (160 - 2), f_classif(after, labels)[0], rtol=1e-3)
    assert (np.diff(fisher[np.argsort(rank)]) <= 0).all()
    points = pyarrow.csv.read_csv(folder / "tsne.csv")
    assert points["example"].to_pylist() == [i * 160 // 100 for i in range(100)]
    names = np.array(["negative", "positive"])
    assert points["class"].to_pylist() == names[labels[points["example"].to_numpy()]].tolist()
    first = written(folder)
    assert cli(*arguments)[0] == 0
    assert written(folder) == first


@pytest.mark.slow
def test_a_regression_has_correlations_but_no_classes(cli, setting, tmp_path):
    texts = [f"a {word} film" for word in ("good", "bad", "dull", "fine", "great", "awful")] * 4
    scores = [float(i % 6) for i in range(24)]
    for split in ("train", "validation"):
        columns = {"sentence1": texts, "sentence2": texts[::-1], "label": scores, "idx": list(range(24))}
        write_parquet(tmp_path / "data" / "glue" / "stsb" / f"{split}.parquet", columns)
    setting = [*setting, "task=stsb", f"data.root={tmp_path / 'data'}"]
    code, _, err = cli("+experiment=adaptation_embeddings", *setting)
    assert code == 2
    assert err.strip().count("\n") == 0
    assert "stsb is a regression" in err
    assert not embedded(tmp_path)
    assert cli("+experiment=isobn_embeddings", *setting)[0] == 0
    assert (tmp_path / "reports" / "isobn_embeddings" / "figure5.svg").is_file()


@pytest.mark.slow
def test_without_a_pooler_h_is_the_vector_before_it(cli, setting):
    code, out, err = cli("+experiment=adaptation_embeddings", *setting, "analysis.points=60", "analysis.perplexity=9")
    assert code == 0, err
    assert "h is h^l" in out


@pytest.mark.slow
@pytest.mark.parametrize(("experiment", "override"), [
    ("isobn_embeddings", "analysis.threshold=2"),
    ("isobn_embeddings", "analysis.bins=0"),
    ("adaptation_embeddings", "analysis.perplexity=400"),
])  # fmt: skip
def test_a_setting_that_cannot_be_is_one_line(cli, setting, experiment, override):
    code, _, err = cli(f"+experiment={experiment}", *setting, override)
    assert code == 2
    assert err.startswith("isobench: analysis")
    assert err.strip().count("\n") == 0
