"""Build a model from its config alone, without its weights, to find out what a run would need."""

from pathlib import Path
from typing import Any

from isobench.common.errors import UserError, extract_first_line
from isobench.config.schema import Encoder
from isobench.data import hub, weights
from isobench.data.packaged.encoders import DISTILBERT_CONFIG, MPNET_CONFIG, find_packaged_weights
from isobench.models.encoder_decoders import LoadedEncoderDecoder, assemble_encoder_decoder
from isobench.models.encoders import LoadedEncoder, assemble_encoder
from isobench.models.huggingface_head import find_huggingface_pooling
from isobench.models.loading import keep_masks_on_gpu, silence_transformers


def read_encoder_config(cfg: Encoder) -> Any:
    """Read an encoder's transformers config: from its settings, its folder, its package, the hub's cache or the hub.

    No weights are read, and the hub is asked only for a config that is not in its cache.

    Raises:
        UserError: there is no config, and why.
    """
    source = weights.find_encoder_source(cfg)
    if source == "hub" and not is_config_cached(cfg) and not hub.is_reachable():
        raise UserError(f"encoder={cfg.name}: the hub can't be reached and the model's config is not in its cache")
    from transformers import AutoConfig

    silence_transformers()
    if source == "scratch":
        settings = {"vocab_size": cfg.vocabulary_size} if cfg.vocabulary_size else {}
        return AutoConfig.for_model(**settings | dict(cfg.scratch or {}))
    if source == "embedded" and cfg.embedded in ("distilbert", "mpnet"):
        return AutoConfig.for_model(**(MPNET_CONFIG if cfg.embedded == "mpnet" else DISTILBERT_CONFIG))
    name, options = str(cfg.hub), {"revision": cfg.revision, "local_files_only": is_config_cached(cfg)}
    if source != "hub":
        path = Path(str(cfg.path)).expanduser() if source == "path" else find_packaged_weights(cfg).parent
        name, options = str(path), {}
    try:
        return AutoConfig.from_pretrained(name, trust_remote_code=cfg.trust_remote_code, **options)
    except Exception as error:  # transformers raises many kinds
        raise UserError(f"encoder={cfg.name} has no config that can be read: {extract_first_line(error)}") from error


def is_config_cached(cfg: Encoder) -> bool:
    """Return whether the config of a model on the hub is in the hub's cache on this machine."""
    import huggingface_hub

    file = huggingface_hub.try_to_load_from_cache(str(cfg.hub), "config.json", revision=cfg.revision)
    return isinstance(file, str)


def build_encoder(cfg: Encoder, config: Any, head: str) -> LoadedEncoder:
    """Build an encoder as ``isobench.models.encoders.load_encoder`` does, with weights that have no meaning.

    Args:
        cfg: the encoder's settings.
        config: the model's transformers config.
        head: name of the head that reads the vectors.

    Raises:
        UserError: no such layer or pooling in this model.
    """
    from transformers import AutoModel

    silence_transformers()
    keep_masks_on_gpu()
    model = AutoModel.from_config(config, dtype="float32", trust_remote_code=cfg.trust_remote_code)
    pooling = find_huggingface_pooling(config) if head == "huggingface" else cfg.pooling
    return assemble_encoder(cfg, model, pooling, set(), 0, [])


def build_encoder_decoder(cfg: Encoder, config: Any) -> LoadedEncoderDecoder:
    """Build an encoder-decoder as ``isobench.models.encoder_decoders`` does, with weights that have no meaning.

    Args:
        cfg: the encoder's settings.
        config: the model's transformers config.

    Raises:
        UserError: the model has no output projection to calibrate.
    """
    from transformers import AutoModelForSeq2SeqLM

    silence_transformers()
    keep_masks_on_gpu()
    model = AutoModelForSeq2SeqLM.from_config(config, dtype="float32", trust_remote_code=cfg.trust_remote_code)
    return assemble_encoder_decoder(cfg, model, [])
