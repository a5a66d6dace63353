"""The pages: links lead somewhere, names exist, examples run."""

import importlib
import re
import runpy
import statistics
from types import SimpleNamespace

import pytest
import torch
from beside_print import _format_difference
from helpers import ROOT
from notebook import execute_page
from scipy.stats import ttest_ind

from isobench.papers.published import PublishedTable

PATTERNS = ("*.md", "docs/**/*.md", "experiments/**/*.md", "examples/**/*.md", "benchmarks/*.md")
PAGES = sorted(page for pattern in PATTERNS for page in ROOT.glob(pattern))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_names_on_a_page_exist(page):
    text = page.read_text()
    targets = [target for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) if "://" not in target]
    assert [target for target in targets if not (page.parent / target).exists()] == []
    experiments = {file.stem for file in ROOT.glob("ex*/*/experiment/*.yaml")} | {"NAME", "mine"}
    assert set(re.findall(r"\+experiment=(\w+)", text)) <= experiments
    files = re.findall(r"(?<![\w/-])((?:isobench|benchmarks|conf|docs|examples)/[\w/]+\.(?:py|yaml|md))", text)
    if page.name not in ("preregistration.md", "results.md"):  # as it was registered, and made from bundles
        missing = [file for file in files if not (ROOT / file).exists()]
        assert [file for file in missing if "NAME" not in file and "halved" not in file] == []
    for module, names in re.findall(r"^ *from (isobench[\w.]*) import (.+)$", text, re.MULTILINE):
        assert [name for name in names.split(", ") if not hasattr(importlib.import_module(module), name)] == []
    tests = re.findall(r"((?:experiments/\w+/)?tests/[\w/]+\.py)(?:::(\w+))?", text)
    assert [name for file, name in tests if f"{name}" not in (ROOT / file).read_text()] == []


@pytest.mark.slow
def test_the_examples_of_the_library_page_run():
    page = (ROOT / "docs" / "how-to" / "library.md").read_text()
    blocks = re.findall(r"(?:^    .*\n|^\n)+", page, re.MULTILINE)
    code = [re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in blocks if "from isobench" in block]
    assert len(code) == 3
    names = {
        "head": torch.nn.Linear(768, 2), "dropout": torch.nn.Dropout(0.1), "pooled": torch.randn(16, 768),
        "task_loss": torch.zeros(()), "X": torch.randn(50, 8),
    }  # fmt: skip
    for block in code:
        exec(block, names)
    assert 0 < names["i1"] <= 1
    assert names["logits"].shape == (16, 2)
    assert names["loss"].isfinite()


@pytest.mark.slow
def test_the_code_of_the_notebook_page_runs():
    shown = execute_page((ROOT / "docs" / "how-to" / "notebook.md").read_text(), ROOT)
    assert (shown.count("<table"), shown.count("data:image/svg+xml;base64,")) == (5, 1)


@pytest.mark.parametrize(("form", "spread"), [("sd", statistics.stdev), ("population_sd", statistics.pstdev)])
def test_a_difference_from_print_has_welchs_interval_and_prints_rounding(form, spread):
    theirs, values = [58.0, 60.0, 60.0, 61.0, 63.5], [61.0, 64.0, 63.0]
    printed = [statistics.fmean(theirs), spread(theirs)]
    cells, methods = {"bert": {"plain": {"RTE": printed}}}, {"none": "plain"}
    table = PublishedTable.model_construct(what="of 5 seeds", form=["mean", form], methods=methods, cells=cells)
    about = {"published_of": "bert", "method": "none", "column": "RTE", "task": "rte", "kind": "score", "n": 3}
    cell = SimpleNamespace(**about, values=values, mean=statistics.fmean(values), sd=statistics.stdev(values))
    low, high = ttest_ind(values, theirs, equal_var=False).confidence_interval()
    assert _format_difference(table, cell) == f"+2.17 \\[{low - 0.05:+.2f}, {high + 0.05:+.2f}\\]"


@pytest.mark.slow
def test_isobn_in_plain_pytorch_lowers_the_first_components_share(capsys):
    runpy.run_path(str(ROOT / "examples" / "isobn_in_pytorch.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["plain", "IsoBN"]
    plain, isobn = ([float(number) for number in re.findall(r"(?<= )\d\.\d{3}", line)] for line in lines)
    assert min(plain[0], isobn[0]) > 0.6  # of four classes
    assert isobn[1] < plain[1]
