"""Causal and masked language models: running text in windows, models from nothing, perplexity."""

from dataclasses import replace
from typing import Any

from isobench.common.errors import refuse
from isobench.config.schema import Config, Data, Task
from isobench.kinds.words import Words
from isobench.tasks.kind import Examples
from isobench.tasks.predictions import NUMBER_COLUMNS, PredictedSplit, read_numbers

FOR_NEW_MODELS = ("encoder.attention", "encoder.normformer", "encoder.frozen_blocks")


class Language(Words):
    """Predict the next token, or masked tokens (``task.language``)."""

    metrics = ("token_probability",)
    reads = ("task.language", "encoder.scratch", "encoder.vocabulary_size", *FOR_NEW_MODELS)
    scored = (*Words.scored, "task.language.subsample", "task.language.masked_share")
    packaged = ("", "gpt-scratch")
    has_labels = False

    def check(self, cfg: Config) -> None:
        super().check(cfg)
        settings = [name for name in FOR_NEW_MODELS if getattr(cfg.encoder, name.partition(".")[2]) is not None]
        refuse(
            (len(cfg.task.text) != 1, "task.text must name one column: a language model reads only texts"),
            (
                settings and not cfg.encoder.scratch,
                f"{', '.join(settings)}: of models from nothing (encoder=gpt-scratch)",
            ),
        )

    def read(self, task: Task, data: Data, split: str, limit: int | None = None) -> Examples:
        """Read running text; ``limit`` counts its texts."""
        from isobench.data.sources import describe_own_reading, read_texts

        return Examples([read_texts(task, data, split)[:limit]], notes=describe_own_reading(task, data, split))

    def family(self, task: Task) -> Any:
        from isobench.kinds.language.module import find_family

        return find_family(task)

    def build(self, cfg: Config, identity: Any) -> Any:
        from isobench.kinds.language.build import build_parts

        return build_parts(cfg, identity)

    def columns(self) -> dict[str, str]:
        """Note the predicted tokens and the loss of each window."""
        return NUMBER_COLUMNS

    def parse(self, rows: Any, task: Task, split: str) -> PredictedSplit:
        predicted = read_numbers(rows, 1, split)
        return replace(predicted, units=predicted.labels[:, None])  # nats for each token

    def score(self, task: Task, labels: Any, predictions: Any) -> dict[str, Any]:
        from isobench.metrics.task import evaluate_predictions

        return evaluate_predictions(list(task.metrics), labels, predictions)
