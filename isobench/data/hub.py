"""The hub of models and data sets: whether it can be reached, and loading data sets from it."""

import functools
import http.client
import os
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent import futures
from pathlib import Path
from typing import Any

from isobench.common.errors import StorageError, UserError, extract_first_line
from isobench.common.files import UNWRITABLE, is_storage_error, name_system_error

ANSWER_SECONDS = 3.0  # within which the hub has to answer


@functools.cache
def is_reachable() -> bool:
    """Return True if the hub answers in time; if not, tell its client libraries to use their local cache only.

    The hub is asked once, because those libraries retry for up to a minute.
    """
    if is_offline():
        return False
    answer, started = start_asking()
    try:
        # The answer may have come while this process was busy, so that the thread has not read it yet.
        if answer.result(max(started + ANSWER_SECONDS - time.monotonic(), ANSWER_SECONDS / 3)):
            return True
    except futures.TimeoutError:
        pass
    os.environ["HF_HUB_OFFLINE"] = "1"
    for name in ("huggingface_hub.constants", "datasets.config"):  # imported libraries have read the switch already
        if name in sys.modules:
            sys.modules[name].HF_HUB_OFFLINE = True  # type: ignore[attr-defined]
    return False


def is_offline() -> bool:
    """Return True if the user has told the hub's client libraries to stay offline."""
    return os.environ.get("HF_HUB_OFFLINE", "0").lower() in ("1", "true", "yes", "on")


@functools.cache
def start_asking() -> "tuple[futures.Future[bool], float]":
    """Start asking the hub in a thread; returns the answer to come, and when asking started.

    A thread that takes too long is abandoned. urllib's own time limit is not enough: it does not include the look-up
    of the hub's name, and it begins anew for each of the hub's addresses.
    """
    answer: futures.Future[bool] = futures.Future()
    threading.Thread(target=lambda: answer.set_result(_ask_hub()), daemon=True).start()
    return answer, time.monotonic()


def _ask_hub() -> bool:
    url = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    try:
        urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=ANSWER_SECONDS).close()
    except urllib.error.HTTPError as error:
        return error.code < 500
    except (OSError, ValueError, http.client.HTTPException):
        return False
    return True


def raise_if_cache_is_full(error: BaseException) -> None:
    """Raise StorageError if an error of a client library comes from the disk, where it keeps what it downloads."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and is_storage_error(cause, UNWRITABLE):  # the others may be the network's
            full = f"the hub's cache can't be written: {name_system_error(cause)}; make room or set HF_HOME=FOLDER"
            raise StorageError(full) from error
        cause = cause.__cause__ or cause.__context__


def is_absent(kind: str, name: str) -> bool:
    """Return True if the client libraries' caches surely have nothing of a repository, without importing these.

    ``kind``: ``models`` or ``datasets``.
    """
    from huggingface_hub import constants

    if (Path(constants.HF_HUB_CACHE) / f"{kind}--{name.replace('/', '--')}").exists():
        return False
    prepared = Path(os.environ.get("HF_DATASETS_CACHE") or f"{constants.HF_HOME}/datasets").expanduser()
    # Named after owner and data set, in a form that depends on the version: any of the owner's may be it.
    return kind == "models" or not list(prepared.glob(f"{name.partition('/')[0]}*"))


def make_absence_error(setting: str, name: str, advice: str) -> UserError:
    """Make the error for what ``setting`` needs of the hub and can't get; ``advice`` says what to do."""
    return UserError(f"{setting}: the hub can't be reached and {name} is not in its cache; {advice}")


def load_hub_dataset(
    name: str, subset: str | None, revision: str | None, split: str | None, setting: str, advice: str
) -> Any:
    """Load one split of a data set with ``datasets.load_dataset``, or all splits if ``split`` is None.

    ``setting``, such as ``task=rte``, asks for it; ``advice`` says what to do if the hub can't be reached.
    """
    reachable = is_reachable()
    import datasets

    datasets.disable_progress_bars()
    full_name = f"{name}/{subset}" if subset else name
    options = {"revision": revision} if split is None else {"revision": revision, "split": split}
    try:
        return datasets.load_dataset(name, subset, **options)
    except Exception as error:  # the client raises many kinds; all but a full disk mean the same to the user
        raise_if_cache_is_full(error)
        if reachable:
            part = f" {split}" if split else ""
            raise UserError(f"the hub did not give {full_name}{part}: {extract_first_line(error)}") from error
        raise make_absence_error(setting, full_name, advice) from error
