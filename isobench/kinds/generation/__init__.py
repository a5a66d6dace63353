"""Translation and summarisation: pairs of texts, an encoder-decoder, beam search, BLEU and ROUGE."""

from typing import Any

from isobench.common.errors import refuse
from isobench.common.packages import require_package
from isobench.config.schema import Config, Data, Task
from isobench.kinds.generation import grammars, scores
from isobench.kinds.words import Words
from isobench.tasks.kind import Examples


class Generation(Words):
    """Write a target text for a source text (``task.generation``)."""

    metrics = scores.METRIC_NAMES
    reads = (
        "task.generation", "task.reduced", "task.sample_seed", "encoder.scratch", "encoder.vocabulary_size",
        "encoder.instructions", "optimization.batch_tokens", "optimization.label_smoothing",
    )  # fmt: skip
    gives = ("samples",)
    scored = (*Words.scored, "task.generation.diacritics")
    packaged = ("captions", "bart-scratch")
    is_corpus = True

    def check(self, cfg: Config) -> None:
        super().check(cfg)
        task, generation = cfg.task, cfg.task.generation
        assert generation is not None
        batch_tokens = cfg.optimization.batch_tokens
        refuse(
            (len(task.text) != 1, "task.text must name one column: task.generation has the target"),
            (
                task.embedded != (generation.grammar is not None),
                "task.embedded=true and task.generation.grammar need each other: set both, or neither",
            ),
            (
                not (generation.grammar or cfg.data.root or task.hub),
                f"task={task.name} needs its files: data.root=FOLDER",
            ),
            (
                cfg.optimization.drop_last and batch_tokens is not None,
                "optimization.drop_last needs batches of one size: unset it, or optimization.batch_tokens",
            ),
        )

    def require_packages(self, task: Task) -> None:
        for name in task.metrics:
            package = "rouge-score" if name.startswith("rouge") else "sacrebleu"
            require_package(package, "generation", f"task={task.name}")

    def fingerprint(self, task: Task) -> dict[str, str]:
        """Identify what a grammar generates by its version."""
        assert task.generation is not None
        unknown = [split for split in task.read_splits if split not in grammars.SPLIT_SIZES]
        refuse((unknown, f"task={task.name} has no {', '.join(unknown)}: it has {', '.join(grammars.SPLIT_SIZES)}"))
        return {"generated": f"{task.generation.grammar}, version {grammars.VERSION}"}

    def read(self, task: Task, data: Data, split: str, limit: int | None = None) -> Examples:
        """Read sources as texts and targets as labels."""
        from isobench.kinds.generation.pairs import read_pairs

        return read_pairs(task, data, split, limit)

    def count_written(self, task: Task) -> int:
        return task.generation.max_length if task.generation else 0

    def family(self, task: Task) -> Any:
        from isobench.models.encoders import ENCODER_DECODER

        return ENCODER_DECODER

    def build(self, cfg: Config, identity: Any) -> Any:
        from isobench.kinds.generation.build import build_parts

        return build_parts(cfg, identity)

    def score(self, task: Task, labels: Any, predictions: Any) -> dict[str, Any]:
        return scores.evaluate_texts(task.metrics, list(labels), list(predictions), scores.find_target_language(task))
