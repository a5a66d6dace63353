"""Check that a sweep ends by writing its page: the last line is the page's path, and no result depends on it."""

import pytest
from helpers import check_done

pytestmark = pytest.mark.slow


def test_a_sweep_ends_with_the_path_of_its_page(cli, small, outputs):
    sweep = [*small, "report=true", "optimization.epochs=1", "calibration=none,isobn_paper", "-m"]
    out, _ = check_done(cli(*sweep, "seed=1,2"))
    (page,) = outputs.glob("reports/*/report.html")
    assert out.splitlines()[-1] == f"Page: {page}"
    before = page.read_text()
    assert cli(*sweep, "seed=1,2")[1] == out
    assert page.read_text() == before
    check_done(cli(*sweep, "seed=1,2", "calibration=none,cosine"))
    assert page.read_text() == before  # another sweep has another page


def test_a_page_that_can_t_be_written_costs_no_result(cli, small, outputs):
    outputs.mkdir()
    (outputs / "reports").write_text("in its place")
    out, _ = check_done(cli(*small, "report=true", "optimization.epochs=1", "seed=1,2"))
    assert "Page:" not in out
    assert len(list(outputs.glob("runs/*/result.json"))) == 2
