"""What IsoBN's first version claims beside the later one, and how it is judged."""

from collections.abc import Mapping
from functools import partial

from isobench.report.build import Report
from isobench.report.checks import is_better_than
from isobench.report.claims import HOLDS, UNDECIDED, Claim, Outcome
from isobench.report.printed import Change, only, scale_effects
from isobench_papers.isobn.claims import NOTHING, stand_in

# Tasks whose larger class has 70% and 67% of the training examples. In SST-2 and RTE it has 56% and 50%, and the
# classes of QNLI and MNLI are about even.
UNBALANCED_TASKS = ("cola", "mrpc")
CENTRED = "center+isobn_paper"
RELEASED = ["isobn_released"]  # whose printed cells stand for the centred ones
EXCHANGED = {("isobn_released", "mrpc"): 0, ("isobn_released", "cola"): 2.27}  # the mean of both tasks stays


def scale_by_cell(factors: Mapping[tuple[str, str], float]) -> Change:
    """Make the change that multiplies the effects of cells: method and task -> factor, of others 1."""
    return lambda cell: scale_effects(factors.get((cell.method, cell.task), 1))(cell)


def centring_hurts(report: Report) -> Outcome:
    """Check that IsoBN beats itself on centred embeddings by more than chance, and in the mean of each task."""
    outcome = is_better_than("isobn_paper", CENTRED)(report)
    runs = report.runs[report.runs["selected"].astype(bool)].astype({"score": float})
    means = runs.groupby(["task", "method"])["score"].mean().unstack()
    if outcome.word == HOLDS and not (means["isobn_paper"] > means[CENTRED]).all():
        return Outcome(UNDECIDED, f"{outcome.numbers}; not on each task")
    return outcome


CLAIMS = [
    Claim(
        "Subtracting the mean from [CLS] embedding hurts fine-tuning performance on datasets with unbalanced "
        "class labels",
        "Section 3.3",
        "on CoLA and MRPC, isobn_paper, the modified form, beats itself on centred embeddings by more than chance, "
        "and in the mean of each",
        "glue_isobn",
        centring_hurts,
        "the text has no numbers",
        {
            "the same scores": partial(stand_in, CENTRED),
            "centring helps": partial(stand_in, CENTRED, only(NOTHING, method=["isobn_paper"])),
            "centring hurts on balanced RTE": partial(
                stand_in, CENTRED, only(NOTHING, method=RELEASED, task=["rte"])
            ),
            "it takes a tenth of IsoBN's gain": partial(stand_in, CENTRED, only(scale_effects(0.9), method=RELEASED)),
            "it hurts on MRPC and helps as much on CoLA": partial(stand_in, CENTRED, scale_by_cell(EXCHANGED)),
            "it hurts much on MRPC and helps a little on CoLA": partial(
                stand_in, CENTRED, scale_by_cell({("isobn_released", "mrpc"): -3, ("isobn_released", "cola"): 1.3})
            ),
        },
        methods=("isobn_paper", CENTRED),
        tasks=UNBALANCED_TASKS,
        settings="-m seed=1,2,3,4,5 task=cola,mrpc 'calibration=isobn_paper,[center,isobn_paper]' "
        "calibration.momentum=0.95",
    ),
]
