"""The typed config of an encoder and of the classifier on it."""

import re
from dataclasses import dataclass
from typing import Annotated, Any

from omegaconf import MISSING

from isobench.config.bounds import NAME, Bound, Fraction, NonNegativeInt, PositiveInt, at_least, one_of

POOLINGS = ("pooler", "cls", "mean", "last")
FILE_NAME = Bound(
    lambda name: re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name) is not None,
    "names a file in the model's folder, such as pytorch_model.bin",
)
HEADS = ("isobn", "huggingface")


@dataclass
class Encoder:
    """A pretrained ``AutoModel`` and how its token vectors become one sentence vector.

    In translation and summarisation it is an ``AutoModelForSeq2SeqLM``, and nothing is pooled.
    """

    name: Annotated[str, NAME] = MISSING
    version: PositiveInt = 1  # part of the run key: raise it when the encoder's settings change their meaning
    hub: str | None = None  # model on the Hugging Face hub
    revision: str | None = None  # commit of the hub's model
    # Parameters that the safetensors weights lack are loaded from this file of the same commit or folder.
    missing_from: Annotated[str, FILE_NAME] | None = None
    embedded: str | None = None  # weights from an installed package
    path: str | None = None  # a transformers folder
    pooling: Annotated[str, one_of(*POOLINGS)] = "pooler"  # how token vectors become one sentence vector
    layer: NonNegativeInt | None = None  # pool this layer's output, 0 the embeddings'; null is the model's own output
    token_type_ids: bool = True  # tell the model which sentence of a pair a token is of
    trust_remote_code: bool = False  # run Python code that comes with the model
    first_token_only: bool = True  # if only the first token is pooled, the last layer computes no other (lossless)
    packing: bool = True  # give a batch to the model as one row without padding, if the model can read it (lossless)
    scratch: dict[str, Any] | None = None  # a transformers config (model_type, ...) to initialise at random
    # With scratch: tokens of a tokenizer that is learned from the training set, unless path has one. At least 300,
    # which are all bytes and some special tokens.
    vocabulary_size: Annotated[int, at_least(300)] | None = None
    instructions: bool | None = None  # start every source with task.generation.instruction
    gradient_checkpointing: bool = False  # compute activations again in the backward pass, to save memory
    compile: bool = False  # torch.compile


@dataclass
class Head:
    """Settings of the part that turns token vectors into scores of classes.

    ``isobn`` is ``encoder.pooling``, dropout and a linear classifier, as in IsoBN's released code. ``huggingface`` is
    the sequence-classification head that transformers gives the encoder's architecture: its own pooling, pooler,
    dropouts, classifier and initial weights. ``init`` and ``dropout`` are settings of ``isobn`` alone.
    """

    name: Annotated[str, one_of(*HEADS)] = "isobn"
    init: Annotated[str, one_of("uniform", "normal")] | None = "uniform"  # of the classifier's weights
    dropout: Fraction | None = None  # null takes the encoder's own hidden dropout
