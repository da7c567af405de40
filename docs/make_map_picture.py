"""The picture of the server's map in docs/: the fleet demo, in a browser.

python docs/make_map_picture.py [FOLDER]
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import sync_playwright

FOLDER = Path(__file__).parent / "images"
_TRAILS = 15_000
"""Milliseconds for movements to leave a trail."""


@contextmanager
def served() -> Iterator[str]:
    """Start a server with the demo; yield its address."""
    command = [sys.executable, "-m", "rangecast", "serve", "--demo", "fleet", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://\S+:\d+", process.stdout.readline())
            assert found is not None
            yield found.group()
        finally:
            process.terminate()


def draw_map(folder: Path) -> None:
    """Draw the map into a folder."""
    with served() as url, sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 1180, "height": 760})
        page.goto(url)
        page.locator("#map-changes li:nth-child(40)").wait_for(state="attached", timeout=180_000)
        page.wait_for_timeout(_TRAILS)
        page.locator("#map-part").screenshot(path=folder / "fleet.png")
        browser.close()


if __name__ == "__main__":
    draw_map(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
