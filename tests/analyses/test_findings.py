"""Check that the return value of a user's own analysis is checked before anything is written."""

import pytest

from isobench.analyses.findings import Findings
from isobench.analyses.runner import check_findings
from isobench.common.errors import UserError


@pytest.mark.parametrize(
    ("findings", "message"),
    [
        (None, "the analysis returned NoneType: return isobench.analyses.findings.Findings"),
        (Findings(numbers={"../a": []}), "use a file name without folders"),
        (Findings(figures={"a/b": None}), "use a file name without folders"),
        (Findings(numbers={"a": 5}), "its numbers a as a list of mappings, one for each row"),
        (Findings(numbers={"a": [1]}), "a list of mappings"),
    ],
)
def test_what_an_analysis_returns_is_checked(findings, message):
    with pytest.raises(UserError, match=message):
        check_findings(findings)


def test_a_column_of_several_kinds_is_named(tmp_path):
    with pytest.raises(UserError, match="the numbers a mix several types in one column"):
        Findings(numbers={"a": [{"x": 1}, {"x": "b"}]}).write(tmp_path)
