"""Garbage is looked for rarely while records are read, and as before afterwards."""

import gc

import pytest

from isobench.common.environment import OBJECTS_BETWEEN_COLLECTIONS, collect_garbage_rarely


@pytest.mark.parametrize("frozen", [0, 5])
def test_thresholds_return_also_after_an_error_and_objects_are_kept_out_once(monkeypatch, frozen):
    before, calls = gc.get_threshold(), []
    monkeypatch.setattr(gc, "get_freeze_count", lambda: frozen)
    monkeypatch.setattr(gc, "freeze", lambda: calls.append("frozen"))

    @collect_garbage_rarely()
    def fail():
        calls.append(gc.get_threshold())
        raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert gc.get_threshold() == before
    assert calls == [(OBJECTS_BETWEEN_COLLECTIONS, *before[1:]), *([] if frozen else ["frozen"])]
