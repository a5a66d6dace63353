"""The model and the batches of `tagging.Tagging`: a linear classifier of the first token of each word."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from isobench.config.schema import Config
from isobench.data.batches.loaders import ModelInputs, SplitLoaders
from isobench.data.batches.tokens import Rows
from isobench.models.encoders import load_encoder
from isobench.models.tokenization import load_tokenizer
from isobench.runs.identity import Identity, resolve_seeds, seed_everything
from isobench.training.build import RunParts, build_chain, count_training_steps
from isobench.training.fine_tuned import FineTuningModule


class Sentences(Rows):
    """N tokenised sentences; ``tags`` of their tokens are numbers of classes, -1 of a token that begins no word."""

    def __init__(self, examples: Any, tokenizer: Any, longest: int, classes: list[str]) -> None:
        self.references = examples.labels
        words = [text.split(" ") for text in examples.texts[0]]
        encoded = tokenizer(words, is_split_into_words=True, truncation=True, max_length=longest)
        self.ids = [torch.tensor(ids) for ids in encoded["input_ids"]]
        self.tags = [torch.full_like(ids, -1) for ids in self.ids]
        for row, tags in enumerate(self.references):
            owners = encoded.word_ids(row)  # of each token its word
            for word, tag in enumerate(tags.split(" ")):
                if word in owners:  # else it is cut off
                    self.tags[row][owners.index(word)] = classes.index(tag)
        self.lengths = np.array([len(ids) for ids in self.ids])

    def collate(self, indices: list[int]) -> dict[str, Any]:
        """Return ids, attention mask and classes [B, T], and the sentences' places [B]."""
        ids = pad_sequence([self.ids[i] for i in indices], batch_first=True)
        mask = torch.arange(ids.shape[1]) < torch.from_numpy(self.lengths[indices])[:, None]
        tags = pad_sequence([self.tags[i] for i in indices], batch_first=True, padding_value=-1)
        return {"ids": ids, "mask": mask.long(), "tags": tags, "index": torch.tensor(indices)}


class Tagger(FineTuningModule):
    """Classify the calibrated vectors of words."""

    def __init__(self, cfg: Config, loaded: Any, chain: Any, loaders: SplitLoaders, classes: list[str]) -> None:
        super().__init__(cfg, chain, count_training_steps(cfg, loaders))
        self.encoder, self.classes = loaded.encoder, classes
        self.references = [sentences.references for sentences in loaders.dev_tokens]
        self.dropout, self.head = nn.Dropout(loaded.dropout), nn.Linear(chain.out_dim, len(classes))

    def matrices(self) -> dict[str, Any]:
        return {"head": lambda: self.head.weight, "vocabulary": self.encoder.vocabulary}

    def compute_logits(self, batch: dict[str, Any]) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Return the logits of words [n, c], their calibrated vectors [n, d], and what each method read."""
        states = self.encoder.model(batch["ids"], attention_mask=batch["mask"]).last_hidden_state  # (B, T, d)
        h, method_inputs = self.chain(states[batch["tags"] >= 0], nn.Identity())
        return self.head(self.dropout(h)), h, method_inputs

    def training_step(self, batch: dict[str, Any], index: int) -> Tensor:
        logits, _, method_inputs = self.compute_logits(batch)
        loss = nn.functional.cross_entropy(logits, batch["tags"][batch["tags"] >= 0])
        return self.compute_total_loss(loss, method_inputs, index)

    def validation_step(self, batch: dict[str, Any], index: int, dataloader_idx: int = 0) -> dict[str, Tensor]:
        logits, h, _ = self.compute_logits(batch)
        counts = (batch["tags"] >= 0).sum(1).tolist()
        tags = [" ".join(self.classes[i] for i in own.tolist()) for own in logits.argmax(1).split(counts)]
        self.note_texts(dataloader_idx, batch["index"], tags)
        return {"embedding": h.float()}


def build_parts(cfg: Config, identity: Identity, kind: Any) -> RunParts:
    """Build the module and the loaders of a run."""
    task, seeds, tokenizer = cfg.task, resolve_seeds(cfg), load_tokenizer(cfg.encoder, cfg.data.cache)
    loaded = load_encoder(cfg.encoder, cfg.data.cache, seeds["init"], all_tokens=True)
    longest = min(task.max_length, loaded.max_positions)
    examples = {split: kind.read(task, cfg.data, split, limit) for split, limit in task.limits.items()}
    classes = sorted({tag for own in examples.values() for text in own.labels for tag in text.split(" ")})
    splits = {split: Sentences(own, tokenizer, longest, classes) for split, own in examples.items()}
    inputs = ModelInputs(tokenizer, "", loaded.max_positions, loaded.dim)
    loaders = SplitLoaders(cfg, inputs, splits, longest, seeds["order"])
    chain = build_chain(cfg, loaded.dim)
    seed_everything(seeds["init"])  # every method starts with the same head
    module = Tagger(cfg, loaded, chain, loaders, classes)
    chain.adjust(module.matrices())
    return RunParts(module, loaders, loaded.warnings)
