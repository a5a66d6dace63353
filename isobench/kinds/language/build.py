"""Build a run of language modelling."""

from functools import partial
from typing import Any

from isobench.common.errors import refuse
from isobench.config.schema import Config
from isobench.data.batches.loaders import ModelInputs, describe_unknown_tokens
from isobench.data.sources import read_texts
from isobench.kinds.language.module import LanguageModel, find_family
from isobench.kinds.language.windows import load_windows
from isobench.kinds.words.projection import require_causal, require_plain_logits
from isobench.kinds.words.vocabulary import DEFAULT_SIZE, VERSION, learn_tokenizer_once, load_with_end
from isobench.models.encoders import CAUSAL, load_generator
from isobench.models.tokenization import fingerprint_tokenizer
from isobench.runs.identity import Identity, resolve_seeds
from isobench.training.build import RunParts, build_chain, count_training_steps


def build_parts(cfg: Config, identity: Identity) -> RunParts:
    """Build the module and the loaders of a run."""
    family = find_family(cfg.task)
    tokenizer = load_tokenizer(cfg, identity)
    loaded = load_generator(cfg.encoder, cfg.data.cache, resolve_seeds(cfg)["init"], tokenizer, family)
    require_plain_logits(loaded.model, cfg.encoder.name)
    if family is CAUSAL:
        require_causal(loaded.model, cfg.encoder.name)
    inputs = ModelInputs(tokenizer, fingerprint_tokenizer(tokenizer), loaded.max_positions, loaded.dim)
    loaders = load_windows(cfg, inputs, identity.data, resolve_seeds(cfg)["order"])
    chain = build_chain(cfg, loaded.dim)
    module = LanguageModel(cfg, loaded, chain, loaders, count_training_steps(cfg, loaders))
    chain.adjust(module.matrices())  # a method may set a matrix's spectrum before training
    unknown = describe_unknown_tokens(cfg.encoder.name, tokenizer, [loaders.train_tokens.ids.ravel()])
    return RunParts(module, loaders, [*loaded.warnings, *unknown])


def load_tokenizer(cfg: Config, identity: Identity) -> Any:
    """Load the tokenizer of a language model, which needs an end token; learn one if the encoder has none."""
    task, encoder = cfg.task, cfg.encoder
    if encoder.scratch and not encoder.path:
        inputs = [VERSION, "language", identity.data, task.train_split, list(task.text)]
        read = partial(read_texts, task, cfg.data, task.train_split)
        learned = learn_tokenizer_once(cfg, identity.data, inputs, read)
        wanted = encoder.vocabulary_size or DEFAULT_SIZE
        gives = f"the training text gives {len(learned):,} tokens, not encoder.vocabulary_size={wanted}"
        refuse((len(learned) < wanted, f"task={task.name}: {gives}"))
        return learned
    tokenizer = load_with_end(encoder, cfg.data.cache, "gpt-scratch")
    lacks_mask = task.language and task.language.objective == "masked" and tokenizer.mask_token_id is None
    refuse((lacks_mask, f"encoder={encoder.name}: the tokenizer has no mask token (task.language.objective=causal)"))
    return tokenizer
