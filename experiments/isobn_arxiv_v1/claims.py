"""What IsoBN's first version claims beside the later one, and how it is judged."""

from isobench.report.checks import is_better_than
from isobench.report.claims import Claim

# Tasks whose larger class has 70% and 67% of the training examples. In SST-2 and RTE it has 56% and 50%, and the
# classes of QNLI and MNLI are about even.
UNBALANCED_TASKS = ("cola", "mrpc")

CLAIMS = [
    Claim(
        "Subtracting the mean from [CLS] embedding hurts fine-tuning performance on datasets with unbalanced "
        "class labels",
        "Section 3.3",
        "on CoLA and MRPC, isobn_paper, the modified form, beats itself on centred embeddings by more than chance",
        "glue_isobn",
        is_better_than("isobn_paper", "center+isobn_paper", UNBALANCED_TASKS),
        "the text has no numbers",
        settings="-m seed=1,2,3,4,5 task=cola,mrpc 'calibration=isobn_paper,[center,isobn_paper]'",
    ),
]
