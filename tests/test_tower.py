"""The tower of folders: imports point one way, and methods and measures can be used without the rest."""

import subprocess
import sys
from graphlib import TopologicalSorter

import pytest
from helpers import ROOT

FRAMEWORKS = (
    "hydra", "omegaconf", "pytorch_lightning", "transformers", "datasets", "wandb", "pydantic", "rich",
)  # fmt: skip
SLOW_TO_IMPORT = ("scipy", "sklearn", "sacrebleu", "rouge_score")

# Run in a process of its own: an import of one of the names fails, in this module and in all it imports.
FORBID_IMPORTS = """
import sys

class Forbid:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {forbidden!r}:
            raise ImportError(f"{{name}} may not be imported here")

sys.meta_path.insert(0, Forbid())
"""
USE_CALIBRATION = """
import torch
from isobench.calibration import IsoBN
layer = IsoBN(4)
assert layer(torch.randn(8, 4)).shape == (8, 4)
assert int(layer.batches) == 1
"""
USE_METRICS = """
import torch
from isobench.metrics import explained_variance, partition_isotropy
i1, i2 = partition_isotropy(torch.randn(20, 4))
assert 0 < i1 <= 1 and i2 >= 0
assert 0 < explained_variance(torch.randn(20, 4), 1) <= 1
"""


def run_python(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("use", [USE_CALIBRATION, USE_METRICS], ids=["calibration", "metrics"])
def test_methods_and_measures_work_where_only_torch_and_numpy_are(use):
    run_python(FORBID_IMPORTS.format(forbidden=FRAMEWORKS + SLOW_TO_IMPORT) + use)


def test_no_file_imports_itself_through_others():
    import grimp

    graph = grimp.build_graph("isobench", cache_dir=None)
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    assert len(list(TopologicalSorter(imports).static_order())) == len(graph.modules)  # raises CycleError on a circle
