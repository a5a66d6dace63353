"""The architectures, as transformers' ``model_type``, that ``head=huggingface`` knows a head for."""

from isobench.common.errors import UserError

WITH_OWN_POOLER = ("bert", "albert")  # architectures whose head reads the encoder's pretrained pooler
WITH_DENSE_LAYER = ("roberta", "xlm-roberta", "camembert", "mpnet", "electra")  # the head brings a dense layer
ARCHITECTURES = (*WITH_OWN_POOLER, *WITH_DENSE_LAYER, "distilbert", "deberta", "deberta-v2", "modernbert")


def check_architecture(model_type: str) -> None:
    """Raise UserError if ``head=huggingface`` has no head for this architecture."""
    if model_type not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise UserError(f"head=huggingface has no head for {model_type}, only for {known}: choose head=isobn")
