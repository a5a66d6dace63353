"""Too Much in Common (Bis et al. 2021), Section 3.3: common enemies, in the gradient of one step of a language model.

The loss of n predictions is the mean of -log softmax(W h_t + b) at the target y_t, with h_t the model's state. By
Eq. 5 the gradient of the row w_v of the output embedding W is

    dL/dw_v = (1/n) sum_t (p_t(v) - [v = y_t]) h_t

For a word that is no target of the step, it is sum_t p_t(v) h_t / n: a combination of the states with positive
weights, so a step pushes the word away from them. Of one prediction the gradients of all these words are parallel; of
several, as far as the words' probabilities rise and fall together, or the states are alike. Where W is the input
embedding too, its gradient has a second part through the model, which the paper leaves out here, and so do we.
"""

from typing import TYPE_CHECKING, Annotated, Any

from isobench.analyses.rows import TidyRow
from isobench.analyses.shown import Rows, Shown, format_number, make_table
from isobench.common.errors import UserError
from isobench.config.bounds import NOT_EMPTY, Fraction, PositiveInt

if TYPE_CHECKING:  # importing them takes seconds
    from torch import Tensor

    from isobench.analyses.subject import Subject

GROUPS = ("others", "targets")  # of words: no target of the step, or one
MEASURES = ("cosine", "away", "norm")


def compute(
    subjects: list["Subject"],
    corpus: str,
    texts: PositiveInt,
    length: PositiveInt,
    masked: Fraction,
    predictions: Annotated[list[PositiveInt], NOT_EMPTY],
) -> Rows:
    """Measure the gradients of all rows of the output embedding in one step, for steps of several sizes.

    Args:
        subjects: language models. One whose tokenizer has a mask token predicts masked tokens, any other the next.
        corpus: name of a corpus of ``corpus.py``.
        texts: read so many texts from its start.
        length: of the windows that the texts are cut into, in tokens.
        masked: the share of tokens that are masked.
        predictions: sizes of steps. A larger step has the predictions of the smaller ones too.

    Raises:
        UserError: the texts have fewer predictions, or a calibration is set.
    """
    from isobench.analyses.subject import check_no_calibration, iterate_subjects
    from isobench_papers.too_much_in_common.corpus import open_corpus

    check_no_calibration(subjects)
    opened = open_corpus(corpus, subjects[0].cfg.data, texts)
    passages = [text for batch in opened.iter_batches() for text in batch]
    rows: list[TidyRow] = []
    for subject in iterate_subjects(subjects, "gradients"):
        states, targets, weight, bias = predict(subject, passages, length, masked, max(predictions))
        for count in predictions:
            own = states[:count], targets[:count]
            names = {"encoder": subject.encoder, "predictions": count}
            rows.append(names | measure(differentiate(*own, weight, bias), *own))
    return {"gradients": rows}


def predict(
    subject: "Subject", texts: list[str], length: int, masked: float, count: int
) -> "tuple[Tensor, Tensor, Tensor, Tensor | None]":
    """Predict the first ``count`` tokens of texts with a language model, in random order.

    Returns:
        The states [count, d], the tokens [count], and the output embedding's rows [V, d] and bias [V], in float64.
    """
    import torch

    from isobench.models.encoders import CAUSAL, MASKED, load_generator
    from isobench.runs.identity import resolve_seeds

    cfg, tokenizer = subject.cfg, subject.tokenizer
    family = CAUSAL if tokenizer.mask_token_id is None else MASKED
    loaded = load_generator(cfg.encoder, cfg.data.cache, resolve_seeds(cfg)["init"], tokenizer, family)
    subject.warnings += loaded.warnings
    tokens = tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
    ids = torch.tensor([token for own in tokens for token in own])
    ids = ids[: len(ids) // length * length].view(-1, length)  # [windows, length]
    generator = torch.Generator().manual_seed(resolve_seeds(cfg)["order"])
    if family is CAUSAL:
        is_predicted, given, targets = torch.arange(length).expand_as(ids) < length - 1, ids, ids.roll(-1, 1)
    else:
        is_predicted = torch.rand(ids.shape, generator=generator) < masked
        given, targets = ids.masked_fill(is_predicted, tokenizer.mask_token_id), ids
    places = is_predicted.nonzero()[:count]  # window and token
    if len(places) < count:
        raise UserError(f"analysis.predictions: the texts have {len(places)}, not {count}; raise analysis.texts")
    places = places[torch.randperm(count, generator=generator)]
    projection, states = loaded.model.get_output_embeddings(), []

    def keep(module: Any, arguments: "tuple[Tensor, ...]") -> "tuple[Tensor]":
        states.append(arguments[0])
        return (arguments[0][:, :1],)  # the logits are not needed

    projection.register_forward_pre_hook(keep)
    with torch.no_grad():
        loaded.model.eval()(input_ids=given[: places[:, 0].max() + 1])
    bias = None if projection.bias is None else projection.bias.detach().double()
    window, token = places.T
    return states[0][window, token].double(), targets[window, token], projection.weight.detach().double(), bias


def differentiate(states: "Tensor", targets: "Tensor", weight: "Tensor", bias: "Tensor | None" = None) -> "Tensor":
    """Compute dL/dW [V, d] of the mean cross-entropy of targets [n], given states [n, d], W [V, d] and a bias [V]."""
    import torch

    errors = torch.softmax(torch.nn.functional.linear(states, weight, bias), 1)  # p_t(v)
    errors[torch.arange(len(targets)), targets] -= 1
    return errors.T @ states / len(targets)


def measure(gradients: "Tensor", states: "Tensor", targets: "Tensor") -> TidyRow:
    """Measure gradients [V, d]: of the targets and of all other words, with how many they are.

    ``cosine``: the mean cosine of two words' gradients. ``away``: the mean cosine of a word's step, which is against
    its gradient, with the way from the mean state to the origin. ``norm``: the gradients' mean length.
    """
    import torch

    from isobench.common.linalg import row_norms
    from isobench.metrics.isotropy import average_cosine_of, sum_unit_rows

    is_target = torch.zeros(len(gradients), dtype=torch.bool)
    is_target[targets] = True
    row, mean = {}, states.mean(0)
    for group, own in zip(GROUPS, (gradients[~is_target], gradients[is_target]), strict=True):
        total, directed = sum_unit_rows(own)
        away = ((total @ mean) / (mean.norm() * directed)).item()
        found = {"cosine": average_cosine_of(total, directed), "away": away, "norm": row_norms(own).mean().item()}
        row |= {group: len(own)} | {f"{group}_{name}": value for name, value in found.items()}
    return row


def describe_differences(subjects: list["Subject"], rows: Rows) -> list[str]:
    """Describe how encoders differ from the paper's, which prints nothing of its gradients."""
    from isobench.analyses.subject import list_encoder_differences

    return list_encoder_differences(subjects)


def show(rows: Rows) -> Shown:
    """Show the measures by encoder and size of the step, of targets and of other words."""
    headings = [f"{group}: {label}" for label in ("words", *MEASURES) for group in GROUPS]
    table = make_table("Gradients of one step", ("encoder", "predictions"), headings, wrap_numbers=True)
    for row in rows["gradients"]:
        cells = [format_number(row[f"{group}_{name}"], ".3g") for name in MEASURES for group in GROUPS]
        table.add_row(row["encoder"], str(row["predictions"]), *(f"{row[group]:,}" for group in GROUPS), *cells)
    notes = [
        "cosine: of two words' gradients. away: of a word's step with the way from the mean state to the origin. Of "
        "one prediction both are 1 for all words but the target: that is algebra, and no finding."
    ]
    return Shown([table], notes=notes)
