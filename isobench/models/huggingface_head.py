"""Build ``head=huggingface``: the sequence-classification head that transformers gives the encoder's architecture.

The modules are transformers' own, with their dropout rates and initial weights. They are taken apart so that
calibrations fit between them: one with ``placement=before_pooler`` calibrates the vector that enters the pooler, one
with ``after_pooler`` the vector that leaves it, before the last dropout.

    architecture                          vector                  pooler                      then
    BERT, ALBERT                          first token             the pretrained pooler       dropout, classifier
    DistilBERT                            first token             dense, ReLU                 dropout, classifier
    RoBERTa, XLM-R, CamemBERT, MPNet      first token             dropout, dense, tanh        dropout, classifier
    ELECTRA                               first token             dropout, dense, GELU        dropout, classifier
    DeBERTa, DeBERTa-v2                   first token             dropout, dense, activation  dropout, classifier
    ModernBERT                            first token, or mean    dense, activation, norm     dropout, classifier
"""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from isobench.config.schema import WITH_DENSE_LAYER, WITH_OWN_POOLER, check_architecture


@dataclass
class HeadParts:
    """A classifier's head: ``pooler`` [B, d] -> [B, d], ``dropout``, and ``classifier`` [B, d] -> [B, c]."""

    pooler: nn.Module
    dropout: nn.Module
    classifier: nn.Linear


def find_huggingface_pooling(config: Any) -> str:
    """Return how transformers' head turns token vectors into one vector, as a value of ``encoder.pooling``."""
    check_architecture(config.model_type)
    if config.model_type in WITH_OWN_POOLER:
        return "pooler"
    return str(config.classifier_pooling) if config.model_type == "modernbert" else "cls"


def build_huggingface_head(config: Any, pretrained_pooler: nn.Module, classes: int) -> HeadParts:
    """Build transformers' own head for an architecture's config and take it apart; ``classes`` is 1 for a regression.

    Only the head gets memory and initial weights: the model around it is built without either, and dropped.
    ``pretrained_pooler``: the encoder's, for the architectures whose head reads it.
    """
    from transformers import AutoModelForSequenceClassification

    config = copy.deepcopy(config)
    config.num_labels = classes
    with torch.device("meta"):
        model = AutoModelForSequenceClassification.from_config(config, dtype=torch.float32)
    setattr(model, model.base_model_prefix, nn.Identity())
    for module in model.modules():  # Module.to_empty can't do it for the fake tensors of a memory forecast
        for name, parameter in module.named_parameters(recurse=False):
            setattr(module, name, nn.Parameter(torch.empty_like(parameter, device="cpu")))
    model.initialize_weights()
    return split_head(model, pretrained_pooler)


def split_head(model: Any, pretrained_pooler: nn.Module) -> HeadParts:
    """Take the head of a transformers model for sequence classification apart; its encoder is not read."""
    from transformers.activations import ACT2FN

    kind, head = model.config.model_type, model.classifier
    if kind in WITH_DENSE_LAYER:
        activation = head.activation if kind == "electra" else nn.Tanh()
        return HeadParts(nn.Sequential(head.dropout, head.dense, activation), head.dropout, head.out_proj)
    if kind in WITH_OWN_POOLER:
        return HeadParts(pretrained_pooler, model.dropout, head)
    if kind == "distilbert":
        return HeadParts(nn.Sequential(model.pre_classifier, nn.ReLU()), model.dropout, head)
    if kind == "modernbert":
        return HeadParts(model.head, model.drop, head)
    activation = ACT2FN[model.config.pooler_hidden_act]  # DeBERTa
    return HeadParts(nn.Sequential(model.pooler.dropout, model.pooler.dense, activation), model.dropout, head)
