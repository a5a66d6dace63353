"""What the I-STAR paper claims in its abstract, and how it is judged."""

from isobench.report.checks import improves
from isobench.report.claims import Claim

CLAIMS = [
    Claim(
        "decreasing isotropy in contextualized embeddings improves performance on most tasks and models",
        "Abstract",
        "istar_less is above plain fine-tuning in most tasks and encoders, and by more than chance in the mean",
        "glue_istar",
        improves("istar_less", share=0.51),
        "only the abstract is at hand",
    ),
]
