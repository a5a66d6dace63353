"""What a run's key is made of, its lock, and how it differs from the paper's scale."""

import json
import shutil
from copy import deepcopy
from dataclasses import replace

import pytest
from helpers import make_config

from isobench.config.schema import Seeds
from isobench.data.scale import find_encoder_differences, find_scale_differences, find_task_differences
from isobench.runs.identity import Identifier, derive_seed, identify, resolve_seeds


def key(*overrides):
    return identify(make_config(*overrides)).key


PINNED_KEYS = {
    "calibration=none": "1d95009c2d0aabda",
    "calibration=isobn_paper seed=3": "a8cc42cb2a3337f9",
    "calibration=[whitening_zca,cosine] head=huggingface": "cb1abe85cea0c0bb",
    "encoder=distilbert-quire trainer.precision=bf16-mixed optimization.batch_size=8": "e7b0103af2935998",
    "task=captions encoder=bart-scratch calibration=flow": "06c29751d966ebc5",
    "scale=paper +experiment=glue_isobn task=rte encoder=roberta-large data.root=null": "0b6900ad258130f3",
}


@pytest.mark.parametrize("overrides", PINNED_KEYS)
def test_keys_stay_as_they_are(overrides):
    """Finished runs are found by their keys: a changed default, or a new setting that is not null, loses them."""
    assert key(*overrides.split()).startswith(PINNED_KEYS[overrides])


def test_what_decides_a_result_is_in_the_key():
    base = key()
    changes = [
        "seed=2", "seeds.init=3", "seeds.order=3", "seeds.dropout=3", "optimization.lr=1e-4", "task.max_length=32",
        "task.train_samples=9", "calibration=isobn_paper", "encoder=distilbert-quire", "encoder.pooling=cls",
        "head=huggingface", "trainer.precision=bf16-mixed", "calibration.version=2", "evaluation.every=2",
        "evaluation.every=last", "encoder.gradient_checkpointing=true", "optimizer=sgd", "optimizer=coupled_adam",
    ]  # fmt: skip
    keys = {change: key(change) for change in changes}
    assert base not in keys.values()
    assert len(set(keys.values())) == len(changes)


def test_what_does_not_is_not():
    base = key()
    for same in (
        "output_dir=elsewhere", "tracking.backend=none", "trainer.threads=1", "trainer.accelerator=cpu",
        "data.cache=/nowhere", "retry_failed=true", "report=false", "+experiment=glue_isobn",
        "scale=paper task=rotten_tomatoes encoder=minilm", "optimizer=adamw",
    ):  # fmt: skip
        assert key(*same.split()) == base, same


CHAIN = ("+calibration@calibration.then=isobn_paper",)
MONITOR = "+monitors.mine={_target_: %s, top: [%d]}"


def test_name_version_and_settings_of_a_method_or_a_monitor_are_in_the_key_and_its_class_is_not():
    base, monitor = key(*CHAIN), MONITOR % ("a.A", 1)
    assert key("calibration._target_=mine.Method") == key()
    assert key(*CHAIN, "calibration.then._target_=mine.Method") == base != key()
    assert key(monitor) == key(MONITOR % ("b.B", 1)) != key()
    whitening = key("calibration=whitening_zca")
    assert key("calibration=whitening_zca", "calibration.epsilon=null") == whitening
    assert key("calibration=whitening_zca", "calibration.epsilon=0.1") != whitening
    changes = ["name=other", "version=2", "then.name=other", "then.version=2", "then.beta=0.7"]
    assert len({base, *(key(*CHAIN, f"calibration.{change}") for change in changes)}) == 1 + len(changes)
    assert len({key(one) for one in (monitor, MONITOR % ("a.A", 2), monitor.replace("mine", "theirs"))}) == 3


def test_runs_that_share_sections_have_the_identities_that_each_has_alone():
    configs = [make_config(*overrides) for overrides in ((), ("calibration=isobn_paper",), ("task=multi30k",))]
    configs += [replace(cfg, **part) for cfg in configs for part in ({"seed": 2}, {"seeds": Seeds(init=5)})]
    configs += [replace(cfg, optimization=replace(cfg.optimization, lr=1e-3)) for cfg in configs]
    configs += [replace(cfg, output_dir="elsewhere") for cfg in configs]  # the same runs in another folder
    identifier = Identifier()
    found = [identifier.identify(cfg) for cfg in configs]
    assert found == [identify(deepcopy(cfg)) for cfg in configs]
    assert len({identity.key for identity in found}) == len(configs) / 2


def test_a_path_counts_by_its_content(tiny, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(tiny, copy)
    assert key("encoder=local", f"encoder.path={tiny}") == key("encoder=local", f"encoder.path={copy}")
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"hidden_dropout_prob": 0.2}))
    assert key("encoder=local", f"encoder.path={tiny}") != key("encoder=local", f"encoder.path={copy}")


def test_seeds_derive_apart_and_can_be_set_one_by_one():
    streams = resolve_seeds(make_config("seed=1"))
    assert len(set(streams.values())) == 3
    assert resolve_seeds(make_config("seed=1", "seeds.order=7")) == streams | {"order": 7}
    assert all(derive_seed(1, name) != derive_seed(2, name) for name in streams)


def test_scale_is_said(glue):
    assert find_scale_differences(make_config()) == []  # no paper is named
    assert "encoder minilm is not the paper's" in find_scale_differences(make_config("experiment.paper=isobn"))
    assert find_encoder_differences(make_config("experiment.paper=mteb")) == []  # its tables have this encoder
    assert find_scale_differences(make_config("scale=paper", "task=rte", f"data.root={glue}")) == []
    subset = make_config("scale=paper", "task=qqp", f"data.root={glue}", "task.train_split=train_subset")
    assert find_scale_differences(subset) == ["trained on train_subset"]
    assert "at most 9 training examples" in find_scale_differences(make_config("task.train_samples=9"))
    for task, more, differences in (
        ("wmt16_de_en_1m", (), []),  # the paper's own reduction
        ("wmt16_de_en_1m", ("task.reduced=null",), ["training set reduced to nothing"]),
        ("cnn_dailymail_20k", ("task.train_samples=100",), ["at most 100 training examples"]),
        ("multi30k", (), ["task multi30k is not in the paper"]),
    ):
        assert find_task_differences(make_config(f"task={task}", "data.root=null", *more)) == differences
    (difference,) = find_encoder_differences(make_config("encoder=bart-scratch"))
    assert difference == "encoder bart-scratch is randomly initialised"
