"""Look for garbage rarely while many objects are made that stay."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

OBJECTS_BETWEEN_COLLECTIONS = 3_000_000


@contextmanager
def collect_garbage_rarely() -> Iterator[None]:
    """A context or decorator for code that makes many objects and keeps them, such as reading thousands of records.

    Python searches for cycles of unused objects after every 700 new objects, and from time to time among all objects.
    That took a third of the time of reading records. In this context it hardly searches. The first context of a
    process then keeps all objects made so far out of later searches. They are still freed when nothing refers to
    them. Later contexts don't do that, because cycles of unused objects would add up where a command repeats itself.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        if gc.get_freeze_count() == 0:
            gc.freeze()
