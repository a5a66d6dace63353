"""Check that a sweep ends by writing its page: the last line is the page's path, and no result depends on it."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def test_a_sweep_ends_with_the_path_of_its_page(cli, small, outputs):
    sweep = [*small, "report=true", "optimization.epochs=1", "calibration=none,isobn_paper", "-m"]
    code, out, err = cli(*sweep, "seed=1,2")
    assert code == 0, err
    (page,) = outputs.glob("reports/*/report.html")
    assert out.splitlines()[-1] == f"Page: {page}"
    assert "isobn_paper" in page.read_text()
    assert sorted(file.suffix for file in page.parent.iterdir()) == [
        *3 * [".csv"], ".html", ".md", *3 * [".parquet"], ".tex",
    ]  # fmt: skip
    before = page.read_text()
    assert cli(*sweep, "seed=1,2")[1] == out
    assert page.read_text() == before
    assert cli(*sweep, "seed=1,2", "calibration=none,cosine")[0] == 0
    assert page.read_text() == before  # another sweep has another page
    page.unlink()
    _, silent, _ = cli(*sweep, "seed=1,2", "report=false")
    assert silent == out.removesuffix(f"Page: {page}\n")
    assert not page.exists()


def test_a_page_that_can_t_be_written_costs_a_line_and_no_result(cli, small, outputs):
    outputs.mkdir()
    (outputs / "reports").write_text("in its place")
    quick = [*small, "report=true", "optimization.epochs=1", "seed=1,2"]
    code, out, err = cli(*quick)
    assert code == 0
    assert "Page:" not in out
    assert err.splitlines()[-1].startswith(f"isobench: no page is written: {outputs}/reports/")
    assert len(list(outputs.glob("runs/*/result.json"))) == 2
    (outputs / "reports").unlink()
    assert cli(*quick)[1].splitlines()[-1].startswith("Page: ")


def test_a_rule_that_selects_nothing_costs_a_line_and_the_rule_dev_takes_its_place(cli, small):
    sweep = [*small, "report=true", "optimization.epochs=1", "optimization.lr=1e-3,3e-3", "-m"]
    code, out, err = cli(*sweep, "experiment.selection.rule=none")
    assert code == 0
    assert "selection by the rule none: there are several configurations (optimization.lr)" in err
    page = Path(out.splitlines()[-1].removeprefix("Page: ")).read_text()
    assert "best mean over seeds on the set that is reported" in page
