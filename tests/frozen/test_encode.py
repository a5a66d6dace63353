"""Token states of frozen encoders: those of the model itself, without padding and without what is left out."""

from types import SimpleNamespace

import pytest
import torch
from helpers import WORDS, make_config, save_tiny
from transformers import AutoModel, AutoTokenizer

from isobench.frozen.encode import FrozenEncoder
from isobench.models.sentence_encoder import select_layer

TEXTS = [" ".join(WORDS[:length]) for length in (3, 7, 1, 5)]


@pytest.mark.parametrize("architecture", ["bert", "gpt2"])
@pytest.mark.parametrize("layer", [None, 0, 1, "first_last"])
def test_token_states_are_the_models(tmp_path, architecture, layer):
    save_tiny(tmp_path, architecture)
    cfg = make_config("encoder=local", f"encoder.path={tmp_path}", "encoder.pooling=mean")
    encoder = FrozenEncoder(cfg, [layer])
    with pytest.raises(ValueError, match="layer must be one of"):
        next(encoder.iterate_tokens(TEXTS, -1))
    model, tokenizer = AutoModel.from_pretrained(tmp_path).eval(), AutoTokenizer.from_pretrained(tmp_path)
    expected, positions, special = [], [], []
    for text in sorted(TEXTS, key=len):
        inputs = tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            output = model(**inputs, output_hidden_states=True)
        states = output.hidden_states
        averaged = (states[1] + states[2]) / 2
        expected.append((states[layer] if isinstance(layer, int) else averaged if layer else output[0])[0])
        positions.append(torch.arange(len(expected[-1])))
        special.append(torch.isin(inputs["input_ids"][0], torch.tensor(tokenizer.all_special_ids)))
    expected, positions, special = map(torch.cat, (expected, positions, special))

    def sort_rows(rows):
        return rows[rows[:, 0].argsort()]

    for without, kept in (
        ((), special >= 0),
        (["first"], positions > 0),
        (["first", "special"], (positions > 0) & ~special),
    ):
        found = torch.cat(list(encoder.iterate_tokens(TEXTS, layer, without)))
        assert len(found) == int(kept.sum()) > 0
        torch.testing.assert_close(sort_rows(found), sort_rows(expected[kept]), atol=1e-5, rtol=1e-4)


def test_weights_that_its_config_has_no_place_for_are_said(tmp_path, capsys):
    save_tiny(tmp_path, "bert")
    file = tmp_path / "config.json"
    file.write_text(file.read_text().replace('"num_hidden_layers": 2', '"num_hidden_layers": 1'))
    cfg = make_config("encoder=local", f"encoder.path={tmp_path}", "encoder.pooling=mean")
    assert len(list(FrozenEncoder(cfg, [None]).iterate_tokens(TEXTS, None))) > 0
    assert "encoder.layer.1." in capsys.readouterr().err


def test_averages_of_layers_go_by_their_names():
    states = [torch.full((1, 2, 3), float(2**i)) for i in range(5)]  # the embeddings', then four layers'
    output = SimpleNamespace(hidden_states=states, last_hidden_state=states[-1])
    found = {layer: select_layer(output, layer)[0, 0, 0].item() for layer in ("first_last", "last_two", 2, 0, None)}
    assert found == {"first_last": 9, "last_two": 12, 2: 4, 0: 1, None: 16}
