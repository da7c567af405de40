"""Build the pages as a site into build/site, and check that it needs nothing from elsewhere.

`make site` runs it in an environment of its own, `.venv-site`, made from docs/site.lock, after
`make reference` has written the generated pages into build/reference.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES, SITE = ROOT / "build" / "pages", ROOT / "build" / "site"
GENERATED = ROOT / "build" / "reference"
SHOWN = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "docs", "examples", "deploy")
LOADS = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}
"""The elements that make a browser fetch something, and where they say what."""
FROM_ELSEWHERE = re.compile(r"(?:https?:)?//", re.IGNORECASE)
IN_STYLES = re.compile(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//[^)\"';]*", re.IGNORECASE)


class Loaded(HTMLParser):
    """Collects what a page loads from elsewhere; plain links are none of that."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address = dict(attrs).get(LOADS.get(tag, "")) or ""
        if FROM_ELSEWHERE.match(address):
            self.found.append(f"<{tag}> {address}")


def loaded_from_elsewhere(file: Path) -> list[str]:
    """Return what a page or a style sheet has a browser fetch from another place."""
    text = file.read_text()
    parser = Loaded()
    if file.suffix == ".html":
        parser.feed(text)
    return [*parser.found, *IN_STYLES.findall(text)]


def main() -> None:
    """Gather the pages, build, check."""
    shutil.rmtree(PAGES, ignore_errors=True)
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *SHOWN]
    for name in subprocess.check_output(listed, cwd=ROOT, text=True).splitlines():
        place = PAGES / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, place)
    shutil.copytree(GENERATED, PAGES / "docs" / "reference", dirs_exist_ok=True)
    # Not --quiet: it would hide the warnings from the strict mode as well.
    build = [sys.executable, "-m", "mkdocs", "build", "-f", str(ROOT / "docs" / "mkdocs.yml")]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(build, env=quiet, capture_output=True, text=True)
    if built.returncode:
        sys.exit(built.stderr)
    files = sorted(path for path in SITE.rglob("*") if path.suffix in (".html", ".css"))
    wrong = [f"{file}: {what}" for file in files for what in loaded_from_elsewhere(file)]
    if wrong:
        sys.exit("loaded from elsewhere:\n" + "\n".join(wrong))
    pages = sum(file.suffix == ".html" for file in files)
    print(f"{pages} pages; open {(SITE / 'index.html').relative_to(ROOT)}")


if __name__ == "__main__":
    main()
