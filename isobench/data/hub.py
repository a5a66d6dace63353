"""The hub of models and data sets: whether it can be reached, and loading data sets from it."""

import functools
import os
import urllib.error
import urllib.request
from typing import Any

from isobench.common.errors import UserError, extract_first_line


@functools.cache
def is_reachable(timeout: float = 3.0) -> bool:
    """True if the hub answers; if not, tell its client libraries to use their local cache only.

    The hub is asked once, because those libraries retry for half a minute. Call this before ``transformers`` or
    ``datasets`` is imported: they read the environment variable at import.
    """
    if os.environ.get("HF_HUB_OFFLINE", "0").lower() in ("1", "true", "yes", "on"):
        return False
    try:
        url = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
        urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=timeout)
    except urllib.error.HTTPError:
        return True  # it answered
    except (OSError, ValueError):
        os.environ["HF_HUB_OFFLINE"] = "1"
        return False
    return True


def load_hub_dataset(
    name: str, subset: str | None, revision: str | None, split: str | None, setting: str, advice: str
) -> Any:
    """Load a data set with ``datasets.load_dataset``: one split, or all splits if ``split`` is None.

    Args:
        name: the data set on the hub, such as ``nyu-mll/glue``.
        subset: its configuration, such as ``rte``.
        revision: the pinned commit.
        split: such as ``train``.
        setting: the setting that asks for it, such as ``task=rte``. The error message begins with it.
        advice: what to do if the hub can't be reached, for the error message.

    Raises:
        UserError: the hub can't be reached and the data set is not in its cache, or the hub refused.
    """
    reachable = is_reachable()
    import datasets
    import huggingface_hub

    if not reachable:  # transformers may have imported huggingface_hub before the hub was asked
        huggingface_hub.constants.HF_HUB_OFFLINE = True
    datasets.disable_progress_bars()
    full_name = f"{name}/{subset}" if subset else name
    options = {"revision": revision} if split is None else {"revision": revision, "split": split}
    try:
        return datasets.load_dataset(name, subset, **options)
    except Exception as error:  # the client raises many kinds; all mean the same to the user
        if reachable:
            part = f" {split}" if split else ""
            raise UserError(f"the hub did not give {full_name}{part}: {extract_first_line(error)}") from error
        raise UserError(
            f"{setting}: the hub can't be reached and {full_name} is not in its cache; {advice}"
        ) from error
