"""Read what sentence-transformers would do with texts and token vectors, from the files in an encoder's folder.

They are read as data. The vectors of a frozen encoder are its own: its prompt, longest input and small letters are
taken over. Training takes none of them, and ``encoder.pooling`` always decides, because settings are part of a run's
key. What is not taken over is said.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from isobench.common.errors import UserError, doing, refuse
from isobench.common.files import read_bounded
from isobench.config.schema import POOLINGS, Encoder
from isobench.data.weights import find_encoder_folder

# Settings of a folder that are used or said, or that change no vector.
KNOWN = (
    "prompts", "default_prompt_name", "max_seq_length", "do_lower_case", "__version__", "similarity_fn_name",
    "model_type",
)  # fmt: skip
ADAPTER = "adapter_config.json"  # of LoRA and the like
DECLARED_TOKENS = {"minilm": 256, "mpnet": 384}  # the longest input of packaged encoders, by their authors' folders


@dataclass(frozen=True)
class SentenceSettings:
    """Hold what an encoder's folder declares; the defaults are those of a folder that declares nothing.

    Attributes:
        pooling: the kind, by sentence-transformers' name without "tokens".
        others: what else it declares, such as modules besides the transformer and the pooling.
        prompt: the default prompt, which is put before each text.
        pools_prompt: whether the prompt's tokens are pooled too.
        longest: the longest input, in tokens.
        small_letters: whether texts are put in small letters, whatever the tokenizer does.
    """

    pooling: str | None = None
    others: tuple[str, ...] = ()
    prompt: str = ""
    pools_prompt: bool = True
    longest: int | None = None
    small_letters: bool = False


def read_sentence_settings(encoder: Encoder) -> SentenceSettings:
    """Read what an encoder's folder declares; nothing is known of a hub's."""
    if not encoder.path or encoder.word_vectors or encoder.scratch:
        return SentenceSettings(longest=DECLARED_TOKENS.get(str(encoder.embedded)))
    with doing(f"encoder.path={encoder.path}"):
        return _read_settings(find_encoder_folder(encoder))


def _read_settings(folder: Path) -> SentenceSettings:
    root, paths = _find_modules(folder)
    adapters = [place for place in (folder, root / paths.get("Transformer", "")) if (place / ADAPTER).is_file()]
    refuse((bool(adapters), f"it has an adapter ({ADAPTER}), which is not applied: merge it into the weights"))
    pooling = _read(root / paths["Pooling"] / "config.json") if "Pooling" in paths else {}
    chosen = [name for name, value in pooling.items() if name.startswith("pooling_mode_") and value is True]
    kinds = pooling.get("pooling_mode") or "+".join(name[len("pooling_mode_") :] for name in chosen)
    files = sorted((root / paths.get("Transformer", "")).glob("sentence_*_config.json"))
    own = _read(files[0]) if files else {}
    texts = _read(root / "config_sentence_transformers.json")
    prompts, name, longest = texts.get("prompts") or {}, texts.get("default_prompt_name"), own.get("max_seq_length")
    others = [f"{module} of modules.json" for module in paths if module not in ("Transformer", "Pooling")]
    others += [file.name for file in files[1:]]
    others += [f"{key}={value!r}" for key, value in {**own, **texts}.items() if value and key not in KNOWN]
    others += [f"default_prompt_name={name!r}, which names no prompt,"] if name and name not in prompts else []
    return SentenceSettings(
        pooling=re.sub(r"_?tokens?\b|[^\w+]", "", str(kinds)) or None,
        others=tuple(sorted(others)),
        prompt=prompts.get(name) or "",
        pools_prompt=pooling.get("include_prompt") is not False,
        longest=int(longest) if longest else None,
        small_letters=own.get("do_lower_case") is True,
    )


def describe_own_settings(encoder: Encoder, max_length: int | None = None, pools: bool = True) -> list[str]:
    """Say what an encoder's folder declares that is not done with it.

    ``max_length``: how many tokens of a text are read at most in training; None: the encoder is frozen. ``pools``:
    ``encoder.pooling`` is used.
    """
    own = read_sentence_settings(encoder)
    notes = [f"the folder's {what} is not used" for what in own.others if pools]
    if pools and own.pooling and own.pooling != encoder.pooling:
        has = own.pooling in POOLINGS
        advice = f"set encoder.pooling={own.pooling} to have it" if has else "isobench has none such"
        notes.append(f"the folder's own pooling is {own.pooling}, not {encoder.pooling}: {advice}")
    if own.prompt and max_length is not None:
        notes.append(f"the folder's default prompt {own.prompt!r} is put before no text: write it into the texts")
    elif own.prompt and not own.pools_prompt:
        notes.append("the folder leaves its prompt's tokens out of the pooling, which is not done")
    if own.longest and max_length is not None and max_length > own.longest:
        notes.append(
            f"the folder's longest input is {own.longest:,} tokens: set task.max_length={own.longest} to have it"
        )
    if own.small_letters and max_length is not None:
        notes.append("the folder puts texts in small letters, which is not done: write them so")
    where = "encoder.path" if encoder.path else f"encoder={encoder.name}"
    return [f"{where}: {note}" for note in notes]


def _find_modules(folder: Path) -> tuple[Path, dict[str, str]]:
    """Return the folder that lists a transformer's modules, its own or the one above, and their paths by kind."""
    for root in (folder, folder.parent):
        listed = _read(root / "modules.json")
        paths = {str(module.get("type")).rpartition(".")[2]: str(module.get("path")) for module in listed}
        if paths and (root == folder or folder.name in paths.values()):
            return root, paths
    return folder, {}


def _read(file: Path) -> Any:
    """Read a JSON file; it is an empty mapping if there is no file."""
    try:
        return orjson.loads(read_bounded(file)) if file.exists() else {}
    except ValueError as error:
        raise UserError(f"encoder.path: {file} is damaged, or no JSON in UTF-8 without a mark: {error}") from None
