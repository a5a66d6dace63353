"""Garbage is looked for rarely while records are read, and as before afterwards."""

import gc

import pytest

from isobench.common import garbage
from isobench.common.garbage import OBJECTS_BETWEEN_COLLECTIONS, collect_garbage_rarely


@pytest.mark.parametrize("frozen", [0, 5])
def test_thresholds_return_also_after_an_error_and_objects_are_kept_out_once(monkeypatch, frozen):
    before, calls = gc.get_threshold(), []
    monkeypatch.setattr(garbage.gc, "get_freeze_count", lambda: frozen)
    monkeypatch.setattr(garbage.gc, "freeze", lambda: calls.append(1))
    with pytest.raises(KeyError), collect_garbage_rarely():
        assert gc.get_threshold() == (OBJECTS_BETWEEN_COLLECTIONS, *before[1:])
        raise KeyError
    assert gc.get_threshold() == before
    assert len(calls) == (frozen == 0)
