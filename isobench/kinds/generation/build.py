"""Build a run of translation or summarisation."""

from typing import Any

from isobench.calibration.chain import find_prepared_once
from isobench.common.errors import UserError, refuse
from isobench.common.files import sha256_json
from isobench.config.schema import Config
from isobench.data.batches.loaders import ModelInputs, uses_gpu
from isobench.kinds.generation.batches import PairLoaders
from isobench.kinds.generation.module import Seq2Seq
from isobench.kinds.generation.pairs import list_cache_key_inputs, read_pairs, require_generation
from isobench.kinds.generation.scores import build_metric_signatures, find_target_language
from isobench.kinds.words.projection import IDENTITY_POOLER, require_plain_logits
from isobench.kinds.words.vocabulary import VERSION, learn_tokenizer_once, load_with_end
from isobench.models.encoders import ENCODER_DECODER, load_generator
from isobench.models.tokenization import fingerprint_tokenizer
from isobench.runs.identity import Identity, resolve_seeds
from isobench.runs.record import RecordedGeneration
from isobench.training.build import RunParts, build_chain, count_training_steps
from isobench.training.preparation import iterate_vectors


def build_parts(cfg: Config, identity: Identity) -> RunParts:
    """Build the module and the loaders of a run."""
    tokenizer = load_tokenizer(cfg, identity)
    loaded = load_generator(cfg.encoder, cfg.data.cache, resolve_seeds(cfg)["init"], tokenizer, ENCODER_DECODER)
    require_plain_logits(loaded.model, cfg.encoder.name)
    target_language = getattr(tokenizer, "tgt_lang", None)
    fingerprint = sha256_json([fingerprint_tokenizer(tokenizer), target_language])
    inputs = ModelInputs(tokenizer, fingerprint, loaded.max_positions, loaded.dim)
    loaders = PairLoaders(cfg, inputs, (identity.data, identity.encoder), resolve_seeds(cfg)["order"])
    chain = build_chain(cfg, loaded.dim)
    module = Seq2Seq(cfg, loaded, chain, loaders, count_training_steps(cfg, loaders))
    chain.adjust(module.matrices())
    if positions := find_prepared_once(chain):
        module.eval().to("cuda" if uses_gpu(cfg) else "cpu")
        for position in positions:
            chain.prepare(position, iterate_vectors(module, loaders), IDENTITY_POOLER)
    signatures = build_metric_signatures(cfg.task.metrics, find_target_language(cfg.task))
    generation = RecordedGeneration(search=module.describe_search(), signatures=signatures)
    return RunParts(module, loaders, [*loaded.warnings, *loaders.warnings], generation)


def load_tokenizer(cfg: Config, identity: Identity) -> Any:
    """Load the tokenizer of the run's encoder-decoder and set its languages; learn one if the encoder has none.

    It is learned from the training set's sources and targets.
    """
    task, encoder = cfg.task, cfg.encoder
    languages = require_generation(task).languages
    if encoder.scratch and not encoder.path:
        limit = task.train_limit

        def read() -> list[str]:
            pairs = read_pairs(task, cfg.data, task.train_split, limit)
            return [*pairs.texts[0], *pairs.labels]

        inputs = [VERSION, identity.data, *list_cache_key_inputs(task, task.train_split, limit)]
        return learn_tokenizer_once(cfg, identity.data, inputs, read)
    tokenizer = load_with_end(encoder, cfg.data.cache, "bart-scratch")
    if hasattr(tokenizer, "src_lang"):
        if languages is None:
            raise UserError(f"encoder={encoder.name} needs the languages: set task.generation.languages=[en,en]")
        tokenizer.src_lang, tokenizer.tgt_lang = (_find_language_code(tokenizer, language) for language in languages)
    return tokenizer


def _find_language_code(tokenizer: Any, language: str) -> str:
    """Return a tokenizer's own code of a language: ``ro_RO`` for ``ro`` in mBART."""
    codes = getattr(tokenizer, "lang_code_to_id", None) or tokenizer.all_special_tokens
    matches = [code for code in codes if language in (code, code.partition("_")[0])]
    refuse((not matches, f"task.generation.languages: the tokenizer knows no {language}"))
    return str(matches[0])
