"""Write a classifier as transformers loads it: as a model with a head where it has one for these layers."""

from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import nn
from torch.nn.utils import parametrize

from isobench.config.schema import WITH_DENSE_LAYER, WITH_OWN_POOLER, Config
from isobench.models.huggingface_head import split_head
from isobench.training.fine_tuned import copy_state

HEAD_FILE = "head.safetensors"
# Architectures whose own classifier has dense, tanh and classifier, as head=isobn with encoder.pooling=pooler has.
LIKE_ISOBN = (*WITH_OWN_POOLER, *(name for name in WITH_DENSE_LAYER if name != "electra"))


def write_classifier(folder: Path, cfg: Config, module: Any) -> tuple[dict[str, Any], list[str]]:
    """Write encoder and head; return how to load them, and what transformers can't express."""
    if _is_expressible(cfg, module):
        build_transformers_model(cfg, module).save_pretrained(folder)
        return {"load_with": "AutoModelForSequenceClassification"}, []
    model: Any = module.encoder.model
    model.save_pretrained(folder, state_dict=copy_state(model))
    head = nn.ModuleDict({"pooler": module.pooler, "classifier": _make_plain(module.head)})
    save_file(copy_state(head), folder / HEAD_FILE)
    about = {"load_with": "AutoModel", "pooling": module.encoder.pooling, "layer": module.encoder.layer}
    return about, [f"the head ({HEAD_FILE})"]


def _is_expressible(cfg: Config, module: Any) -> bool:
    model: Any = module.encoder.model
    if module.head.in_features != module.width or cfg.task.as_classes is not None:
        return False
    if cfg.head.name == "huggingface":
        return True
    return module.encoder.pooling == "pooler" and model.config.model_type in LIKE_ISOBN


def build_transformers_model(cfg: Config, module: Any) -> Any:
    """Build transformers' model for sequence classification with the weights of encoder, pooler and classifier."""
    from transformers import AutoModelForSequenceClassification

    encoder: Any = module.encoder.model
    names = cfg.task.labels or ["score"]
    config = type(encoder.config).from_dict(encoder.config.to_dict())
    config.id2label, config.label2id = dict(enumerate(names)), {name: number for number, name in enumerate(names)}
    config.problem_type = "regression" if cfg.task.labels is None else "single_label_classification"
    model = AutoModelForSequenceClassification.from_config(config)
    base = getattr(model, model.base_model_prefix)
    base.load_state_dict(copy_state(encoder), strict=False)  # only the pooler, which comes next, is not in it
    own_pooler = getattr(base, "pooler", None)
    parts = split_head(model, own_pooler if own_pooler is not None else nn.Identity())
    tensors = module.pooler.state_dict().values()  # the layers have other names in isobench
    parts.pooler.load_state_dict(dict(zip(parts.pooler.state_dict(), tensors, strict=True)))
    parts.classifier.load_state_dict(copy_state(_make_plain(module.head)))
    return model.eval()


def _make_plain(head: nn.Module) -> nn.Module:
    """Return a classifier whose weight is a parameter: itself, unless its weight is trained as a product."""
    if not parametrize.is_parametrized(head):
        return head
    plain = nn.Linear(head.in_features, head.out_features)  # type: ignore[arg-type]
    plain.load_state_dict({"weight": head.weight, "bias": head.bias})
    return plain
