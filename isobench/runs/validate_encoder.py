"""Check the settings of an encoder and its head that concern each other, before anything is started."""

import yaml

from isobench.common.errors import UserError
from isobench.config.schema import Config, check_architecture
from isobench.data import weights
from isobench.papers.folders import find_config


def validate_encoder(cfg: Config) -> None:
    """Raise UserError for settings of the encoder that don't go together, or a folder without a tokenizer."""
    encoder = cfg.encoder
    if encoder.layer is not None and encoder.pooling == "pooler" and cfg.head.name == "isobn":
        raise UserError("encoder.layer: the pooler is made for the last layer; set encoder.pooling=cls, mean or last")
    if encoder.missing_from and not encoder.path and (encoder.embedded or not encoder.hub):
        raise UserError("encoder.missing_from is for encoders of the hub or of a folder (encoder.path): leave it out")
    if not (encoder.path or encoder.embedded or encoder.scratch):
        check_pinned("encoder", encoder.hub, encoder.revision)
    if not cfg.analysis:  # an analysis of the embedding matrix needs no tokenizer
        weights.check_tokenizer_files(encoder)
    if not (encoder.hub or encoder.embedded or encoder.path or encoder.scratch):
        raise UserError(
            "encoder.path must be set to a transformers folder, or choose another encoder: encoder=minilm"
        )


def validate_head(cfg: Config) -> None:
    """Raise UserError for settings that the head doesn't have, or an encoder that doesn't go with it."""
    head, encoder = cfg.head, cfg.encoder
    if head.name == "isobn":
        if head.init is None:
            raise UserError("head.init must be uniform or normal: set it, or write head=isobn, not head.name=isobn")
        return
    if cfg.analysis and not cfg.analysis.get("trains"):
        raise UserError("head=huggingface: this analysis trains no head: choose head=isobn")
    for setting, value in (("init", head.init), ("dropout", head.dropout)):
        if value is not None:
            raise UserError(
                f"head.{setting}={value} is a setting of head=isobn: choose head=isobn, or leave it out and write "
                "head=huggingface, not head.name=huggingface"
            )
    if (model_type := weights.read_model_type(encoder)) is not None:
        check_architecture(model_type)
    for setting, default in (("pooling", "pooler"), ("layer", None)):
        value = getattr(encoder, setting)
        if value != default:
            source, instead = _find_source_of_encoder_setting(cfg, setting, default)
            raise UserError(
                f"encoder.{setting}={value}, set by {source}, doesn't go with head=huggingface, which has its own "
                f"pooling: choose head=isobn, or {instead}"
            )


def _find_source_of_encoder_setting(cfg: Config, setting: str, default: str | None) -> tuple[str, str]:
    """Return what may have set an encoder's setting to other than its default, and what to do instead."""
    name, experiment = cfg.encoder.name, cfg.experiment.name
    file = find_config("encoder", name)
    if file and yaml.safe_load(file.read_text(encoding="utf-8")).get(setting, default) != default:
        return f"encoder={name}", "choose another encoder"
    sources = [f"+experiment={experiment}"] if experiment else []
    sources += [] if file else [f"encoder={name}"]
    return " or ".join(["the command line", *sources]), f"set encoder.{setting}={default or 'null'}"


def check_pinned(name: str, hub: str | None, revision: str | None) -> None:
    """Raise UserError for data or an encoder on the hub without a commit; ``name``: the section of the config."""
    if hub and not revision:
        raise UserError(f"{name}.revision must be set: a result from the hub can only be repeated at a pinned commit")
