"""A headless Chromium for the tests; Debian's chromium and chromium-driver."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


def why_not() -> str | None:
    """Why there can be no browser here; None if there can."""
    missing = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"not installed: {', '.join(missing)} (Debian's chromium and chromium-driver)" if missing else None


@contextmanager
def chromium(profile: Path) -> Iterator[Any]:
    """A selenium driver with its own fresh profile."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, Service(str(shutil.which("chromedriver"))))
    try:
        yield driver
    finally:
        driver.quit()


def open_page(driver: Any, folder: Path, html: str, width: int) -> Callable[[str], Any]:
    """Open a page in a window of this width; returns the function that carries out a script in it."""
    file = folder / "page.html"
    file.write_text(html, encoding="utf-8")
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    driver.get(file.as_uri())
    return driver.execute_script
