"""What the kinds that write or predict words share: a model whose output embedding reads calibrated states."""

from typing import TYPE_CHECKING

from isobench.config.schema import Config, Task
from isobench.tasks.kind import Kind

if TYPE_CHECKING:
    from isobench.models.encoders import Family


class Words(Kind):
    """A kind that calibrates the states that an output embedding reads."""

    scored = (*Kind.scored, "encoder.vocabulary_size")
    predicts_words = True

    def family(self, task: Task) -> "Family":
        """Return the family of transformers' models that a task needs."""
        raise NotImplementedError

    def check_model(self, cfg: Config) -> None:
        """Make a model of ``encoder.scratch`` once, without memory for its tensors."""
        if cfg.encoder.scratch:
            from isobench.models.encoders import check_scratch

            check_scratch(cfg.encoder, self.family(cfg.task))
