"""The example programs run, and show what they say."""

import re
import runpy

import pytest
from helpers import ROOT


@pytest.mark.slow
def test_isobn_in_plain_pytorch_lowers_the_first_components_share(capsys):
    runpy.run_path(str(ROOT / "examples" / "isobn_in_pytorch.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["plain", "IsoBN"]
    plain, isobn = ([float(number) for number in re.findall(r"(?<= )\d\.\d{3}", line)] for line in lines)
    assert min(plain[0], isobn[0]) > 0.6  # of four classes
    assert isobn[1] < plain[1]
