"""Self-contained pages: one HTML file with its style and plots inside.

`tag` makes an element. Its content is escaped unless it is `Html`, which only this module makes; so
user text is never interpreted as markup. Colours are variables with a light and
a dark value; plots use them too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from rangecast.report.plots import COLOURS, Svg

_LIGHT = "ground:#f7f6f3 card:#ffffff ink:#1d2429 faint:#626d74 line:#dcdfe0 mark:#fdf3e7"
_DARK = "ground:#14181b card:#1c2226 ink:#e8ebec faint:#9aa5ab line:#39434a mark:#3a2d1e"
_DARK_PLOT = "#54b3d1 #f0955e #93c572 #d477a8 #f2c14e #94a3ab #b794c9 #e06c6e"
"""Replaces `plots.COLOURS` in dark mode."""

_STYLE = """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--ground);color:var(--ink);
 font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:1160px;margin:0 auto;padding:40px 24px 72px}
header{margin-bottom:28px}
h1{font-size:2rem;line-height:1.2;letter-spacing:-.02em;margin:0 0 8px}
h2{font-size:1.3rem;line-height:1.3;letter-spacing:-.01em;margin:0 0 6px}
h3{font-size:1rem;margin:0 0 4px}
p{margin:0 0 12px;max-width:72ch}
.lead{font-size:1.08rem;color:var(--faint)}
section{margin-top:52px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(220px,1fr));gap:10px;margin:0}
.tile,.card{background:var(--card);border:1px solid var(--line);border-radius:10px}
.tile{padding:12px 14px 10px}
.tile dt{font-size:.82rem;color:var(--faint)}
.tile dd{margin:2px 0 0}
.tile .value{display:block;font-size:1.25rem;font-weight:650;letter-spacing:-.02em;line-height:1.3;
 white-space:nowrap;font-variant-numeric:tabular-nums}
.tile .note{display:block;font-size:.82rem;color:var(--faint);margin-top:2px}
.good .value{color:var(--c2)}
.bad .value{color:var(--c7)}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr));gap:16px;
 margin-top:16px}
.cards.three{grid-template-columns:repeat(auto-fit,minmax(min(100%,300px),1fr))}
.card{margin:0;padding:18px 18px 14px;min-width:0}
.card svg{display:block;width:100%;height:auto;overflow:visible}
.card svg text{font-family:inherit}
figcaption{font-size:.9rem;color:var(--faint);margin-top:8px}
.scroll{overflow-x:auto;margin-top:16px}
table{border-collapse:collapse;width:100%;font-size:.92rem;font-variant-numeric:tabular-nums}
th{font-weight:600;font-size:.82rem;color:var(--faint);white-space:nowrap}
th,td{text-align:left;padding:8px 12px;border-bottom:1px solid var(--line);vertical-align:top}
tr:last-child td{border-bottom:0}
.number{text-align:right;white-space:nowrap}
code{font:.86em/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;overflow-wrap:anywhere}
.share{display:grid;grid-template-columns:3.2em minmax(24px,1fr);align-items:center;min-width:120px}
.bar{height:6px;border-radius:3px;background:var(--c0);min-width:2px}
footer{margin-top:56px;font-size:.86rem;color:var(--faint)}
@media(max-width:600px){main{padding:24px 14px 48px}h1{font-size:1.55rem}section{margin-top:40px}
 .tiles{grid-template-columns:1fr 1fr;gap:8px}.tile{padding:10px 12px}
 .card{padding:12px}th,td{padding:7px 8px}}
@media print{body{background:#fff}.card,.tile{break-inside:avoid}}
"""


class Html(str):
    """Markup, already escaped."""

    __slots__ = ()


def tag(name: str, *inside: str, **attributes: str) -> Html:
    """Return an element; a trailing `_` in an attribute's name is removed (`class_`)."""
    written = "".join(f' {key.rstrip("_")}="{escape(v)}"' for key, v in attributes.items())
    return Html(f"<{name}{written}>{joined(inside)}</{name}>")


def joined(parts: Iterable[str]) -> Html:
    """Return the parts concatenated; plain texts are escaped."""
    return Html("".join(part if isinstance(part, Html) else escape(part) for part in parts))


def tile(label: str, value: str, note: str = "", *, kind: str = "") -> Html:
    """Return a tile: a key figure with its name and a remark; kind: good, bad or none."""
    shown = [tag("span", value, class_="value")] + ([tag("span", note, class_="note")] * bool(note))
    return tag("div", tag("dt", label), tag("dd", *shown), class_=f"tile {kind}".strip())


def tiles(*each: Html) -> Html:
    """Return a row of tiles that wraps on a narrow page."""
    return tag("dl", *each, class_="tiles")


def card(plot: Svg, title: str, caption: str) -> Html:
    """Return a plot with a title above it and an explanation below it."""
    return tag(
        "figure", tag("h3", title), Html(plot.text), tag("figcaption", caption), class_="card"
    )


def cards(*each: Html, three: bool = False) -> Html:
    """Return cards side by side, two or three per row where there is room."""
    return tag("div", *each, class_="cards three" if three else "cards")


def share(text: str, length: float) -> Html:
    """Return a share as a percentage with a bar."""
    bar = tag("span", class_="bar", style=f"width:{max(0.0, min(1.0, length)):.1%}")
    return tag("span", text, bar, class_="share")


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: str = "") -> Html:
    """Return a table; the headings named in `numbers` (split at commas) are aligned right.

    A table whose headings are all empty is one of names and values: it is shown without them.
    """
    right = set(filter(None, numbers.split(",")))
    kinds = [{"class_": "number"} if heading in right else {} for heading in headings]
    head = [tag("th", text, **kind) for text, kind in zip(headings, kinds, strict=True)]
    body = [
        tag("tr", *(tag("td", cell, **kind) for cell, kind in zip(row, kinds, strict=True)))
        for row in rows
    ]
    top = [tag("thead", tag("tr", *head))] if any(headings) else []
    written = tag("table", *top, tag("tbody", *body))
    return tag("div", written, class_="card scroll")


def section(title: str, intro: str, *content: Html) -> Html:
    """Return a section of a page."""
    return tag("section", tag("h2", title), tag("p", intro), *content)


def page(title: str, lead: str, *content: Html, foot: str = "") -> str:
    """Return a whole page."""
    style = f"{_variables()}{_STYLE}"
    head = joined(
        [
            Html('<meta charset="utf-8">'),
            Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
            Html('<meta name="color-scheme" content="light dark">'),
            tag("title", title),
            Html(f"<style>{style}</style>"),
        ]
    )
    top = tag("header", tag("h1", title), tag("p", lead, class_="lead"))
    body = tag("body", tag("main", top, *content, tag("footer", foot)))
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n{body}</html>\n'


def _variables() -> str:
    def rules(named: str, plot: str) -> str:
        pairs = [selector.split(":") for selector in named.split()]
        pairs += [[f"c{number}", colour] for number, colour in enumerate(plot.split())]
        return ":root{" + ";".join(f"--{name}:{value}" for name, value in pairs) + "}"

    dark = rules(_DARK, _DARK_PLOT)
    return f"{rules(_LIGHT, ' '.join(COLOURS))}@media(prefers-color-scheme:dark){{{dark}}}"
