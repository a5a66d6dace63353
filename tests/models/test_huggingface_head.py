"""head=huggingface against AutoModelForSequenceClassification: logits, gradients, dropouts and initial weights."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import make_config
from torch import Tensor, nn

from isobench.calibration import Calibration
from isobench.calibration.chain import Chain, Link
from isobench.config.schema import ARCHITECTURES, WITH_DENSE_LAYER, WITH_OWN_POOLER, Config, Encoder
from isobench.kinds.classification.module import Classifier
from isobench.models.encoders import load_encoder

WIDTH, LAYERS, CLASSES = 16, 2, 3
OUR_NAMES = {  # of each kind of head: transformers' name of a module -> ours
    "bert": {"pooler.dense": "pooler.dense", "classifier": "head"},
    "albert": {"pooler": "pooler.dense", "classifier": "head"},
    "distilbert": {"pre_classifier": "pooler.0", "classifier": "head"},
    "modernbert": {"head.dense": "pooler.dense", "head.norm": "pooler.norm", "classifier": "head"},
    **{kind: {"classifier.dense": "pooler.1", "classifier.out_proj": "head"} for kind in WITH_DENSE_LAYER},
    **{kind: {"pooler.dense": "pooler.1", "classifier": "head"} for kind in ("deberta", "deberta-v2")},
}
DROPOUT = {  # the setting of the dropout before the classifier, which most heads have before their dense layer too
    **dict.fromkeys(("bert", "mpnet", "electra", "roberta", "xlm-roberta", "camembert"), "hidden_dropout_prob"),
    **{"albert": "classifier_dropout_prob", "distilbert": "seq_classif_dropout", "modernbert": "classifier_dropout"},
    **dict.fromkeys(("deberta", "deberta-v2"), "cls_dropout"),
}
CASES = [*ARCHITECTURES, "modernbert-mean"]


def make_tiny_config(case: str, width: int = WIDTH, **changed) -> Any:
    """The config of a tiny model without any dropout; weights are large, so that a wrong head shows."""
    from transformers import AutoConfig

    kind = case.removesuffix("-mean")
    sizes = {"hidden_size": width, "num_hidden_layers": LAYERS, "num_attention_heads": 2, "vocab_size": 50}
    sizes |= {"intermediate_size": 24, "max_position_embeddings": 40, "initializer_range": 0.3}
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    if kind == "distilbert":
        sizes |= {"dim": width, "n_layers": LAYERS, "n_heads": 2, "hidden_dim": 24}
        none = {"dropout": 0.0, "attention_dropout": 0.0, "seq_classif_dropout": 0.0}
    elif kind in ("albert", "electra"):
        sizes |= {"embedding_size": 12}
        none |= {"classifier_dropout_prob": 0.0} if kind == "albert" else {}
    elif kind == "modernbert":
        none = {}
        sizes |= {"classifier_pooling": "mean" if case.endswith("mean") else "cls", "bos_token_id": 1}
        sizes |= {"eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2, "max_position_embeddings": 64}
    elif kind.startswith("deberta"):
        none |= {"pooler_dropout": 0.0, "cls_dropout": 0.0}
    return AutoConfig.for_model(kind, **{**sizes, **none, "pad_token_id": 0, **changed})


def load_both(case: str, folder: Path, **changed) -> tuple[Classifier, Any]:
    """Ours, and transformers' model with the same weights, in float64, in evaluation mode."""
    from transformers import AutoModel, AutoModelForSequenceClassification

    torch.manual_seed(1)
    config = make_tiny_config(case, **changed)
    AutoModel.from_config(config).save_pretrained(folder)
    theirs = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=CLASSES).double().eval()
    ours = make_classifier(folder, Calibration(WIDTH)).double().eval()
    wanted = {translate(name, theirs, config.model_type): value for name, value in theirs.state_dict().items()}
    missing, unexpected = ours.load_state_dict(wanted, strict=False)
    assert missing == []
    assert not [name for name in unexpected if "position_ids" not in name]
    return ours, theirs


def make_classifier(folder: Path, calibration: Calibration) -> Classifier:
    cfg: Config = make_config("head=huggingface", "task=mnli")
    loaded = load_encoder(Encoder(name="tiny", path=str(folder)), None, seed=1, head="huggingface")
    return Classifier(cfg, loaded, Chain([Link(calibration)]), 10)


def translate(name: str, theirs: Any, kind: str) -> str:
    base = f"{theirs.base_model_prefix}."
    own = name.removeprefix(base) if kind in WITH_OWN_POOLER else name
    for module, ours in OUR_NAMES[kind].items():
        if own.startswith(f"{module}."):
            return ours + own.removeprefix(module)
    return f"encoder.model.{name.removeprefix(base)}"


def make_batch() -> dict[str, Tensor]:
    ids = torch.randint(3, 50, (4, 9), generator=torch.Generator().manual_seed(2))
    mask = (torch.arange(9) < torch.tensor([9, 9, 6, 2])[:, None]).long()
    return {"input_ids": ids * mask, "attention_mask": mask}


def compute_logits(module: Classifier, batch: dict[str, Tensor]) -> Tensor:
    """Compute as the training step does, with the batch in two chunks, each cut to its longest sentence."""
    chunks = [{k: v[:2] for k, v in batch.items()}, {k: v[2:, :6] for k, v in batch.items()}]
    return module.head(module.dropout(module.embed({"chunks": chunks, "restore": torch.arange(4)})))


@pytest.mark.parametrize("case", CASES)
def test_logits_and_gradients_are_those_of_transformers(case, tmp_path):
    ours, theirs = load_both(case, tmp_path)
    batch, labels = make_batch(), torch.tensor([0, 1, 2, 1])
    for training in (False, True):
        ours.train(training), theirs.train(training)
        ours.zero_grad(), theirs.zero_grad()
        mine, expected = compute_logits(ours, batch), theirs(**batch).logits
        assert expected.std() > 0.01
        torch.testing.assert_close(mine, expected, rtol=1e-12, atol=1e-12)
        for logits in (mine, expected):
            nn.functional.cross_entropy(logits, labels).backward()
        compared = 0
        for name, parameter in theirs.named_parameters():
            own = ours.get_parameter(translate(name, theirs, theirs.config.model_type)).grad
            assert (own is None) == (parameter.grad is None), name
            if own is not None:
                torch.testing.assert_close(own, parameter.grad, rtol=1e-12, atol=1e-12, msg=name)
                compared += 1
        assert compared == len([p for p in theirs.parameters() if p.grad is not None]) > 10


@pytest.mark.parametrize("case", CASES)
def test_dropouts_have_transformers_rates_and_places(case, tmp_path):
    kind = case.removesuffix("-mean")
    rates = {DROPOUT[kind]: 0.4}
    if kind.startswith("deberta"):
        rates |= {"pooler_dropout": 0.3}
    ours, theirs = load_both(case, tmp_path, **rates)
    for encoder in (ours.encoder, getattr(theirs, theirs.base_model_prefix)):  # no dropout but the head's
        for part in encoder.modules():
            if isinstance(part, nn.Dropout):
                part.p = 0.0
            for name in ("dropout_prob", "dropout"):
                if isinstance(getattr(part, name, None), float):
                    setattr(part, name, 0.0)
    batch = {name: values[:2] for name, values in make_batch().items()}
    logits = []
    ours.train(), theirs.train()
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        mine = ours.head(ours.dropout(ours.embed({"chunks": [batch], "restore": torch.arange(2)})))
        torch.manual_seed(seed)
        torch.testing.assert_close(mine, theirs(**batch).logits, rtol=1e-12, atol=1e-12)
        logits.append(mine)
    assert torch.equal(logits[0], logits[1])
    assert not torch.equal(logits[0], logits[2])
    assert ours.dropout.p == 0.4
    first = [part.p for part in ours.pooler.modules() if isinstance(part, nn.Dropout)]
    assert first == ([0.4] if kind in WITH_DENSE_LAYER else [0.3] if kind.startswith("deberta") else [])


@pytest.mark.parametrize("case", CASES)
def test_initial_weights_are_distributed_as_transformers_own(case, tmp_path):
    from transformers import AutoModel, AutoModelForSequenceClassification

    width = 256
    config = make_tiny_config(case, width=width, initializer_range=0.05)
    AutoModel.from_config(config).save_pretrained(tmp_path)
    config.num_labels = CLASSES
    theirs = AutoModelForSequenceClassification.from_config(config)
    ours = make_classifier(tmp_path, Calibration(width))
    for name, expected in theirs.named_parameters():
        own = translate(name, theirs, config.model_type)
        if own.startswith("encoder.") or (own.startswith("pooler.") and config.model_type in WITH_OWN_POOLER):
            continue
        mine = ours.get_parameter(own)
        assert mine.dtype == torch.float32
        if expected.std() == 0:  # biases, and the weights of a norm
            assert torch.equal(mine, expected), name
        else:
            assert mine.std().item() == pytest.approx(expected.std().item(), rel=0.15), name
            assert abs(mine.mean()) < 5 * mine.std() / math.sqrt(mine.numel()), name
