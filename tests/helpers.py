"""Functions that tests share: configs, a tiny model and tiny data made on the spot, overrides of quick runs."""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import yaml
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode
from scipy import stats

from isobench.common.packages import conf_dir
from isobench.config.command_line import Override
from isobench.config.schema import Config, register_schema
from isobench.data.scale import find_scale_differences
from isobench.runs.folder import RunFolder
from isobench.runs.identity import identify
from isobench.runs.record import RECORD_FORMAT, RunRecord
from isobench.runs.run import Run
from isobench.runs.validate import validate_config
from isobench.sweep.compose import Composer

ROOT = Path(__file__).resolve().parents[1]  # of the checkout
TEXTS = {  # paper -> the file of its text, without .txt
    "isobn": "isobn_aaai2021", "isobn_arxiv_v1": "isobn_arxiv_v1", "isotropy_calibration": "isotropy_calibration",
    "task_adaptation": "efficient_task_adaptation", "too_much_in_common": "too_much_in_common",
}  # fmt: skip
WORDS = "the a film plot cast was is and of it very quite so good great bad awful fine dull sharp".split()


@cache
def make_composer() -> Composer:
    register_schema()
    GlobalHydra.instance().clear()
    with initialize_config_dir(conf_dir(), version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        return Composer(loader, loader.load_configuration("config", ["tracking=none"], RunMode.MULTIRUN))


def make_config(*overrides: str) -> Config:
    """A run's config, composed as a sweep does: choices of groups once, values set on a copy of the result."""
    return deepcopy(make_composer().compose(list(map(Override.parse, overrides))))


def build_parts(*overrides: str):
    """The module, the data and the warnings of a run with these overrides."""
    from isobench.training.build import build_run_parts

    cfg = make_config(*overrides)
    return build_run_parts(cfg, identify(cfg))


def record_content(cfg: Config, **parts) -> dict:
    """A made-up result.json without an epoch, failed if ``failure`` is given; ``parts`` replace its own."""
    cost = {
        "seconds": 9.0, "training_seconds": 6.0, "evaluation_seconds": 2.0, "checkpoint_seconds": 0.0,
        "examples": 100, "tokens_per_second": 50.0, "peak_memory_mib": {"resident": 100.0},
    }  # fmt: skip
    return {
        "format": RECORD_FORMAT, "key": "0" * 64, "status": "failed" if parts.get("failure") else "finished",
        "failure": None, "seeds": {"init": 1, "order": 2, "dropout": 3}, "scale": {"name": cfg.scale, "differs": []},
        "best": None, "history": [], "warnings": [], "attempts": 1,
        "where": {"host": "a", "machine": "a", "job": None, "log": None, "share": 1},
        "data": {"fingerprint": {"a": "b"}}, "encoder": {"fingerprint": {"c": "d"}},
        "provenance": {
            "git": {"commit": "abc", "dirty": False}, "python": "3.11", "versions": {}, "platform": "Linux",
            "cpu": "X", "cores": 2, "threads": 1, "gpus": [], "command": ["isobench"],
        },
        "config": asdict(cfg), **parts, "cost": cost | parts.get("cost", {}),
    }  # fmt: skip


def make_record(cfg: Config, **parts) -> RunRecord:
    return RunRecord.model_validate(record_content(cfg, **parts))


def make_ended_run(
    score: float | None,
    *overrides: str,
    output_dir="/nowhere",
    metrics=None,
    isotropy=None,
    epochs=2,
    failed=None,
    constant=False,
    **parts,
) -> Run:
    """Make a run up that ended with this score (None: undefined), which rose evenly over its epochs, or that failed.

    ``metrics``: of its dev set, by default all the score; ``parts``: of its record.
    """  # fmt: skip
    cfg = make_config(f"output_dir={output_dir}", "data.root=null", *overrides)
    of_dev_set = metrics or dict.fromkeys(cfg.task.metrics, score)
    history = [
        {
            "epoch": epoch, "step": 10 * epoch, "isotropy": isotropy or {},
            **dict.fromkeys(("score", "selection"), (score or 0.0) * epoch / epochs),
            cfg.task.dev_splits[0]: {name: value and value * epoch / epochs for name, value in of_dev_set.items()}
            | {"constant_predictor": constant},
        }
        for epoch in range(1, epochs + 1)
    ]  # fmt: skip
    ended = {"best": history[-1], "history": history}
    failure = {"failure": {"name": failed, "message": "it <broke> & fell_over"}}
    scale = {"name": cfg.scale, "differs": find_scale_differences(cfg)}
    key = hashlib.sha256(repr((score, overrides)).encode()).hexdigest()
    record = make_record(cfg, **((failure if failed else ended) | {"scale": scale, "key": key} | parts))
    return Run(cfg, RunFolder(str(output_dir), key), record)


def read_records(outputs: Path) -> dict[str, dict]:
    """Read the records of an output folder: name of the run's folder -> content."""
    return {file.parent.name: json.loads(file.read_text()) for file in outputs.glob("runs/*/result.json")}


def save_tiny(folder: Path, architecture: str = "bert", dropout: float = 0.02) -> None:
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, GPT2Config, GPT2Model, PreTrainedTokenizerFast

    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"unk_token": "[UNK]", "model_max_length": 40}
    torch.manual_seed(0)
    if architecture == "bert":
        tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
        special |= {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
        special |= {"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}
        model = BertModel(
            BertConfig(
                vocab_size=len(vocabulary), hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                intermediate_size=48, max_position_embeddings=40, initializer_range=0.3,
                hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout,
            )
        )  # fmt: skip
    else:
        special |= {"eos_token": "[SEP]"}
        model = GPT2Model(GPT2Config(vocab_size=len(vocabulary), n_embd=32, n_layer=2, n_head=2, n_positions=40))
    model.save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)


def read_states(folder: str | Path, texts: Sequence[str]) -> list[list[Any]]:
    """Read texts one by one by transformers' own model; returns for each layer each text's states, [tokens, d]."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        found = [model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True) for text in texts]
    layers = zip(*(output.hidden_states for output in found), strict=True)
    return [[states[0].double().numpy() for states in layer] for layer in layers]


def write_parquet(file: Path, columns: dict) -> None:
    import pyarrow
    import pyarrow.parquet

    file.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.table(columns), file)


def review_columns(n: int, seed: int) -> dict:
    """Sentences that are positive exactly if they hold 'good' or 'great'; lengths from 3 to 20 words."""
    import numpy as np

    rng = np.random.default_rng(seed)
    plain = [w for w in WORDS if w not in ("good", "great", "bad", "awful")]
    sentences, labels = [], []
    for _ in range(n):
        words = rng.choice(plain, rng.integers(2, 20)).tolist()
        label = int(rng.integers(2))
        words.insert(
            int(rng.integers(len(words) + 1)), str(rng.choice(["good", "great"] if label else ["bad", "awful"]))
        )
        sentences.append(" ".join(words))
        labels.append(label)
    return {"sentence": sentences, "label": labels, "idx": list(range(n))}


def tiny_overrides(tiny: str, reviews: str, cache: str, outputs: Path) -> list[str]:
    return [
        "task=sst2", f"data.root={reviews}", f"data.cache={cache}", "encoder=local", f"encoder.path={tiny}",
        f"output_dir={outputs}", "tracking=none", "report=false", "optimization.epochs=2",
        "optimization.batch_size=16", "optimization.lr=3e-3",
    ]  # fmt: skip


def translation_columns(n: int, seed: int) -> dict:
    """English-like sentences of 2 to 9 words, and the same words backwards, spelt backwards."""
    import numpy as np

    rng = np.random.default_rng(seed)
    english = [" ".join(rng.choice(WORDS, rng.integers(2, 10))) for _ in range(n)]
    return {"translation": [{"en": sentence, "de": sentence[::-1]} for sentence in english]}


def translation_overrides(translations: str, cache: str, outputs: Path) -> list[str]:
    return [
        "task=multi30k", f"data.root={translations}", f"data.cache={cache}", "optimization=seq2seq",
        f"output_dir={outputs}", "tracking=none", "report=false", "optimization.epochs=2",
        "optimization.batch_size=16", "task.generation.max_length=24", "task.generation.beams=2",
        "encoder=bart-scratch", "encoder.scratch.d_model=32", "encoder.scratch.encoder_ffn_dim=48",
        "encoder.scratch.decoder_ffn_dim=48", "encoder.scratch.encoder_attention_heads=2",
        "encoder.scratch.decoder_attention_heads=2", "encoder.vocabulary_size=300",
    ]  # fmt: skip


def write_sets(root, **changed):
    """The five sets, of words that the tiny encoder knows, 12 pairs each; ``changed``: a set's columns."""
    import numpy as np

    from isobench_papers.too_much_in_common import word_pairs

    rng = np.random.default_rng(0)
    for name in word_pairs.PAPER_SETS:
        columns = {
            "word1": [str(word) for word in rng.choice(WORDS, 12)],
            "word2": [str(word) for word in rng.choice(WORDS, 12)],
            "score": rng.uniform(0, 10, 12).round(2).tolist(),
        }
        write_parquet(root / "wordsim" / f"{name}.parquet", changed.get(name, columns))
    return root


def train_run(*overrides: str) -> tuple[dict, RunFolder, Config]:
    """Validate a config and train its run in this process; returns the record's content, the folder, the config."""
    from isobench.training.train import train  # imports torch

    cfg = make_config(*overrides)
    validate_config(cfg)
    identity = identify(cfg)
    folder = RunFolder(cfg.output_dir, identity.key)
    train(cfg, identity, folder)
    return json.loads(folder.result_file.read_text()), folder, cfg


def list_printed_cells(paper: str, table: str, *columns: str) -> list[tuple[str, str, str, list]]:
    """List (encoder, row, column, values) of a published table, of these columns or all."""
    from isobench.papers.published import load_tables

    return [
        (encoder, row, column, cells[column])
        for encoder, rows in load_tables(paper)[table].cells.items()
        for row, cells in rows.items()
        for column in columns or cells
    ]


def carry_out(*arguments: str) -> None:
    """Carry out a command of ``python -m isobench`` in this process: for fixtures that several tests share."""
    import pytest

    from isobench import __main__ as entry

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["isobench", *arguments])
        patch.delenv("HYDRA_FULL_ERROR", raising=False)
        GlobalHydra.instance().clear()
        entry.main()


def assert_contains(text: str, *phrases: str) -> None:
    """Assert that a text has each of the phrases, and name the first that it lacks."""
    for phrase in phrases:
        assert phrase in text, phrase


def load_script(file: Path) -> ModuleType:
    """Load a script as a module that no other of its name can stand in for."""
    spec = spec_from_file_location(file.stem, file)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check_difference_from_script(page: Path, row: str, theirs: Any, ours: Any) -> None:
    """Check a row of a page: means and SDs of the script and of ours, ours less its, Welch's 95% interval and p."""
    moments = [*theirs.agg(["mean", "std"]), *ours.agg(["mean", "std"])]
    check_script_row(page, row, [*moments, *compare_by_welch(theirs, ours)])


def compare_by_welch(theirs: Any, ours: Any) -> list[float]:
    """Ours less theirs: the mean, its 95% interval, p."""
    test = stats.ttest_ind(ours, theirs, equal_var=False)
    return [ours.mean() - theirs.mean(), *test.confidence_interval(), test.pvalue]


def check_script_row(page: Path, row: str, computed: list[float]) -> None:
    """Check that a row of a page's comparison with a script begins with these numbers."""
    lines = page.read_text().partition("## The same by transformers alone")[2].splitlines()
    (printed,) = [line for line in lines if line.startswith(f"| {row} |")]
    numbers = [float(number) for number in re.findall(r"[-+]?\d*\.\d+", printed)]
    np.testing.assert_allclose(numbers[: len(computed)], computed, rtol=0, atol=0.0051)


def check_done(result: tuple[int, str, str]) -> tuple[str, str]:
    """Check that a command ended well; returns what it wrote to standard output and to standard error."""
    code, out, err = result
    assert code == 0, err
    return out, err


def check_refused(result: tuple[int, str, str], *phrases: str) -> None:
    """Check that a command ended with exit code 2 and one line of complaint, which has each of the phrases."""
    code, _, err = result
    assert (code, len(err.splitlines())) == (2, 1), err
    assert_contains(err, *phrases)


@contextmanager
def fails() -> Iterator[None]:
    """Expect an error about data, files or settings, in whatever words; a mistake in the code itself is none."""
    try:
        yield
    except (NameError, AssertionError):
        raise
    except Exception:
        return
    raise AssertionError("nothing was refused")


class RunsCode:
    """An object whose unpickling would leave a file behind."""

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


def drop_replaced(arguments: Sequence[str]) -> list[str]:
    """Drop the settings that a later argument sets again: the command line refuses a setting that is typed twice."""
    last = {argument.partition("=")[0].lstrip("+"): place for place, argument in enumerate(arguments)}
    return [
        argument
        for place, argument in enumerate(arguments)
        if argument.startswith("-") or last[argument.partition("=")[0].lstrip("+")] == place
    ]


def value_and_gradient(function, x):
    """Compute a function of a tensor, and its gradient for that tensor."""
    leaf = x.clone().requires_grad_()
    value = function(leaf)
    value.backward()
    return value.detach(), leaf.grad


def switch_off_packing(monkeypatch, chunk_overhead: int | None = None) -> None:
    """Let encoders read padded batches; in chunks that cost this number of tokens each, if it is given."""
    monkeypatch.setattr("isobench.models.encoders.find_first_position", lambda model: None)
    if chunk_overhead is not None:
        monkeypatch.setattr(
            "isobench.kinds.classification.loaders.resolve_chunk_overhead", lambda cfg, dim: chunk_overhead
        )


def read_experiment(name: str) -> dict[str, Any]:
    """Read the YAML file of an experiment."""
    from isobench.papers.folders import find_config

    file = find_config("experiment", name)
    assert file is not None
    return yaml.safe_load(file.read_text())


def read_analysis_rows(output_dir: Path, experiment: str) -> dict[str, list[dict[str, Any]]]:
    """Read the rows that an experiment's analysis wrote."""
    from isobench.analyses.rows import read_stored_rows
    from isobench.runs.folder import report_folder

    return read_stored_rows(report_folder(str(output_dir), experiment))
