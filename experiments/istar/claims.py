"""What the I-STAR paper claims in its abstract, and how it is judged."""

from isobench.report.checks import improves
from isobench.report.claims import Claim

CLAIMS = [
    Claim(
        "Decreasing isotropy improves performance on most tasks and models (abstract; judged over their mean)",
        "glue_istar",
        improves("istar_less"),
    ),
]
