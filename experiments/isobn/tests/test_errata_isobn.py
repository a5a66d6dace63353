"""What IsoBN's AAAI paper prints of its settings and tables, from its text and by computation (experiments/isobn)."""

import re

import numpy as np
import pyarrow.parquet
import pytest
import torch
from helpers import assert_contains, make_config, read_experiment
from scipy import stats

from isobench.calibration import IsoBN
from isobench.calibration.batch_statistics import count_effective_rows
from isobench.metrics import explained_variance
from isobench.papers import published
from isobench.statistics.seeds import expected_maximum
from isobench_papers.isobn.claims import SMALL


@pytest.fixture
def text(papers):
    return (papers / "isobn_aaai2021.txt").read_text()


def test_the_text_prints_these_settings_and_no_others(text):
    assert_contains(
        text,
        r"momentum  $\alpha$  is set to 0.95, the  $\epsilon$  is set to 0.1",
        r"\sigma = \sigma + \alpha(\sigma_{\mathcal{B}} - \sigma)",
        r"\gamma_i = \sum_{j=1}^d \rho_{ij}^2",
        r"learning rate in the range of  $\{1 \times 10^{-5}, 2 \times 10^{-5}, 5 \times 10^{-5}\}$",
        r"batch size in  $\{16, 32\}$",
        r"$\beta$  is chosen in the range of  $\{0.25, 0.5, 1\}$",
        "We select the best combination of hyperparameters on the dev set.",
        "report the median and standard deviation of metrics on the dev set",
    )
    setup = text[text.index("### **Experiment Setup**") : text.index("Method\tAvg")].lower()
    unstated = "length|weight decay|decay rate|clip|patience|dropout|adam eps|accuracy|pearson|spearman|matthews|f1"
    assert not re.search(unstated, setup)


@pytest.mark.parametrize("beta", [0.25, 0.5, 1])
def test_the_root_keeps_the_sum_of_variances_and_the_print_does_not(beta):
    rng = np.random.default_rng(0)
    h = torch.tensor(rng.normal(size=(30, 6)) @ rng.normal(size=(6, 6)))
    sigma = h.std(0, correction=0)
    theta = (sigma * torch.corrcoef(h.T).square().sum(1) + 0.1) ** -beta
    ratio = sigma.square().sum() / (sigma * theta).square().sum()
    settings = {"momentum": 0.95, "eps": 0.1, "beta": beta, "gamma": "sum"}
    kept, printed = (
        IsoBN(6, rescale=rescale, **settings).train()(h).var(0, correction=0).sum().item()
        for rescale in ("variance", "printed")
    )
    total = sigma.square().sum().item()
    assert abs(ratio - 1) > 0.1
    assert kept == pytest.approx(total, rel=1e-4)
    assert printed == pytest.approx(total * ratio.item(), rel=1e-3)


def test_with_a_momentum_of_095_a_batch_is_nearly_all_of_the_statistics():
    for alpha in (0.95, 0.05):
        moving = 0.0
        for batch in [0.0] * 50 + [1.0]:  # Algorithm 1's rule
            moving += alpha * (batch - moving)
        assert moving == pytest.approx(alpha)


def test_an_evaluation_stands_on_the_rows_of_the_last_batch(glue):

    def count(alpha, last, size):
        ages = np.arange(500)
        squares = (alpha * (1 - alpha) ** ages) ** 2 / np.array([last, *[size] * 499], float)
        assert count_effective_rows(alpha, [last, *[size] * 499]) == pytest.approx(1 / squares.sum())
        return 1 / squares.sum()

    assert [f"{count(alpha, 32, 32):.1f}" for alpha in (0.95, 0.05)] == ["35.4", "1248.0"]
    rows = {task: pyarrow.parquet.read_metadata(f"{glue}/glue/{task}/train.parquet").num_rows for task in SMALL}
    assert {task: number % 32 for task, number in rows.items()} == {"rte": 26, "stsb": 21, "mrpc": 20, "cola": 7}
    found = {task: f"{count(0.95, number % 32, 32):.1f}" for task, number in rows.items()}
    assert found == {"rte": "28.8", "stsb": "23.2", "mrpc": "22.1", "cola": "7.8"}
    assert (rows["mrpc"] % 16, f"{count(0.95, 4, 16):.1f}") == (4, "4.4")
    # Of n normal rows the squared correlation of independent dimensions is Beta(1/2, (n - 2)/2).
    assert [round(767 * stats.beta(0.5, (n - 2) / 2).mean()) for n in (7, 35)] == [128, 23]


def test_eq_9_as_printed_does_not_ignore_the_mean(text):
    assert r"$\lambda_i$  is the  $i^{th}$  largest singular value of the matrix h" in text
    assert "also invariant to the mean value of the embeddings" in text
    h = np.random.default_rng(0).normal(size=(200, 8))

    def printed(matrix):
        squares = np.linalg.svd(matrix, compute_uv=False) ** 2
        return squares[0] / squares.sum()

    assert printed(h + 3) > 0.8 > 0.3 > printed(h)
    assert printed(h + 3 - (h + 3).mean(0)) == pytest.approx(explained_variance(torch.tensor(h + 3), 1))


def test_isobn_is_the_best_of_18_configurations_and_plain_of_6(text):
    setup = text[text.index("### **Experiment Setup**") : text.index("#### **Experimental Results**")]
    rates, sizes, betas = (len(found.split(",")) for found in re.findall(r"\\\{(.+?)\\\}", setup))
    assert (rates * sizes * betas, rates * sizes) == (18, 6)
    assert f"{expected_maximum(18) - expected_maximum(6):.2f}" == "0.55"


@pytest.mark.parametrize("paper", ["isobn", "isobn_arxiv_v1"])
def test_one_average_of_four_decides_that_averages_are_truncated(paper):
    table = published.load_tables(paper)["table1"]
    decides = set()
    for encoder, rows in table.cells.items():
        for row, cells in rows.items():
            mean = np.mean([median for median, _ in cells.values()])
            truncated = f"{int(mean * 100 + 1e-6) / 100:.2f}"
            assert truncated == str(table.average[encoder][row])
            if f"{mean:.2f}" != truncated:
                decides.add((encoder, row, f"{mean:.2f}", truncated))
    assert decides == {("roberta-large", "isobn", "88.99", "88.98")}


def test_the_released_scripts_one_configuration_is_in_the_papers_grid():
    grid = read_experiment("glue_isobn")["experiment"]["grid"]["paper"][-1]
    cfg = make_config("optimization=isobn_released", "calibration=isobn_released")
    released = (cfg.optimization.lr, cfg.optimization.batch_size, cfg.calibration["beta"], cfg.optimization.patience)
    assert released == (5e-5, 16, 0.5, None)
    names = ("optimization.lr", "optimization.batch_size", "calibration.beta")
    assert all(value in grid[name] for name, value in zip(names, released[:3], strict=True))
    assert len(grid["task"]) == 7
