"""The pages of the documentation and their blocks of code."""

from __future__ import annotations

import re
from pathlib import Path

from tests import ROOT

DOCS = ROOT / "docs"
ALL = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
WRITTEN_BY_PROGRAMS = [
    DOCS / "reference" / "RESULTS.md",
    *DOCS.glob("reference/benchmarks/*.md"),
    *DOCS.glob("reference/experiments/*.md"),
]
PAGES = [page for page in ALL if page not in WRITTEN_BY_PROGRAMS]
FENCE = re.compile(r"^```(.*)\n((?s:.*?))^```$", re.MULTILINE)


def all_blocks(page: Path) -> list[tuple[str, str]]:
    """Return language and text of all blocks, in order."""
    return FENCE.findall(page.read_text())


def blocks(page: Path, language: str) -> list[str]:
    """Return the blocks in one language."""
    return [text for kind, text in all_blocks(page) if kind == language]


def relative(page: Path) -> str:
    """Return the path of a page from the root, to name a test by it."""
    return str(page.relative_to(ROOT))
