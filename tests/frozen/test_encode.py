"""Frozen encoders: averages of layers, and weights without a place; test_diagnose_command.py holds their states."""

from types import SimpleNamespace

import torch
from helpers import WORDS, make_config, save_tiny

from isobench.frozen.encode import FrozenEncoder
from isobench.models.sentence_encoder import select_layer


def test_weights_that_its_config_has_no_place_for_are_said(tmp_path, capsys):
    save_tiny(tmp_path, "bert")
    file = tmp_path / "config.json"
    file.write_text(file.read_text().replace('"num_hidden_layers": 2', '"num_hidden_layers": 1'))
    cfg = make_config("encoder=local", f"encoder.path={tmp_path}", "encoder.pooling=mean")
    assert len(list(FrozenEncoder(cfg, [None]).iterate_tokens(WORDS, None))) > 0
    assert "encoder.layer.1." in capsys.readouterr().err


def test_averages_of_layers_go_by_their_names():
    states = [torch.full((1, 2, 3), float(2**i)) for i in range(5)]  # the embeddings', then four layers'
    output = SimpleNamespace(hidden_states=states, last_hidden_state=states[-1])
    found = {layer: select_layer(output, layer)[0, 0, 0].item() for layer in ("first_last", "last_two", 2, 0, None)}
    assert found == {"first_last": 9, "last_two": 12, 2: 4, 0: 1, None: 16}
