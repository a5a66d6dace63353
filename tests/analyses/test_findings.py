"""What an analysis of one's own returns is checked before anything is written."""

import pytest

from isobench.analyses.findings import Findings
from isobench.analyses.runner import check_findings
from isobench.common.errors import UserError


@pytest.mark.parametrize(
    ("findings", "message"),
    [
        (None, "the analysis returned NoneType: return isobench.analyses.findings.Findings"),
        (Findings(numbers={"../a": []}), "leave out folders"),
        (Findings(figures={"a/b": None}), "leave out folders"),
        (Findings(numbers={"a": 5}), "a list of mappings, one a row, as its numbers a"),
        (Findings(numbers={"a": [1]}), "a list of mappings"),
    ],
)
def test_what_an_analysis_returns_is_checked(findings, message):
    with pytest.raises(UserError, match=message):
        check_findings(findings)


def test_a_column_of_several_kinds_is_named(tmp_path):
    with pytest.raises(UserError, match="the numbers a have values of several kinds in a column"):
        Findings(numbers={"a": [{"x": 1}, {"x": "b"}]}).write(tmp_path)
