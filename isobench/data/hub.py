"""Is the model and data hub there? Asked once, early: its clients retry for half a minute otherwise."""

import functools
import os
import urllib.error
import urllib.request


@functools.cache
def is_reachable(timeout: float = 3.0) -> bool:
    """True if the hub answers. When it doesn't, its clients are told to use their local cache only.

    Must be asked before ``transformers`` or ``datasets`` is imported: they read the flag at import.
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
