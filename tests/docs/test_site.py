"""The site's navigation has every page, and its check finds what a page loads from elsewhere."""

import re

import pytest

from docs import make_site
from docs.make_reference import PAGES as GENERATED
from tests import ROOT

DOCS = ROOT / "docs"


def test_every_page_is_in_the_navigation_once():
    nav = (DOCS / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    listed = re.findall(r"\S+\.md", nav)
    pages = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]
    pages += [DOCS / "reference" / name for name in GENERATED]
    assert sorted(listed) == sorted(str(page.relative_to(ROOT)) for page in pages)


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.html", '<script src="https://x.org/a.js"></script>', 1),
        ("a.html", '<link rel="stylesheet" href="//x.org/a.css">', 1),
        ("a.html", '<img src="HTTP://x.org/a.png">', 1),
        ("a.html", "<style>@import url('https://x.org/a.css')</style>", 1),
        ("a.css", "@font-face { src: url(https://x.org/a.woff2) }", 1),
        ("a.html", '<a href="https://x.org">there</a> <script src="a.js"></script>', 0),
        ("a.css", 'a { background: url("data:image/svg+xml;charset=utf-8,<svg/>") }', 0),
    ],
)
def test_what_a_page_loads_from_elsewhere_is_found(tmp_path, name, text, found):
    (tmp_path / name).write_text(text)
    assert len(make_site.loaded_from_elsewhere(tmp_path / name)) == found
