"""Conditions on texts in plain Python: what the kernels are compared with.

Conditions are drawn as tuples and evaluated by regular expressions and loops; nothing here reads a
filter.
"""

from __future__ import annotations

import ipaddress
import random
import re
import unicodedata
from typing import Any

Condition = tuple[Any, ...]
"""kind, then: like (pattern), starts / ends / contains (text), equal (text), in (texts),
all / any (phrases), cidr (networks); `fold`, whether case is ignored, is the last item."""


def words_of(text: str) -> list[str]:
    """The words of a text."""
    found, current = [], ""
    for sign in text.casefold():
        if unicodedata.category(sign)[0] in ("L", "M", "N"):
            current += sign
        elif current:
            found.append(current)
            current = ""
    return [*found, current] if current else found


def _expression(pattern: str) -> str:
    made, at = "", 0
    while at < len(pattern):
        if pattern[at] == "\\":
            at += 1
            made += re.escape(pattern[at])
        else:
            made += {"%": ".*", "_": "."}.get(pattern[at], re.escape(pattern[at]))
        at += 1
    return made


def _has(words: list[str], phrase: str) -> bool:
    wanted = words_of(phrase)
    return any(words[at : at + len(wanted)] == wanted for at in range(len(words)))


def holds(condition: Condition, text: str | None, negated: bool = False) -> bool:
    """Return whether a condition, or its negation, holds for a text."""
    if text is None:
        return False
    kind, given, fold = condition
    if kind == "cidr":
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return False
        return any(address in ipaddress.ip_network(one) for one in given) != negated
    if kind in ("all", "any"):
        each = [_has(words_of(text), one) for one in given]
        return (all(each) if kind == "all" else any(each)) != negated
    case = str.casefold if fold else str
    text = case(text)
    if kind == "like":
        found = re.fullmatch(_expression(case(given)), text, re.DOTALL) is not None
    elif kind == "starts_with":
        found = text[: len(case(given))] == case(given)
    elif kind == "ends_with":
        found = text.endswith(case(given))
    elif kind == "contains":
        found = text.find(case(given)) >= 0
    else:
        found = text in [case(one) for one in given]
    return found != negated


def quoted(text: str) -> str:
    """A text as a filter writes it."""
    return "'" + text.replace("'", "''") + "'"


def listed(texts: list[str]) -> str:
    """Texts as a filter lists them."""
    return "(" + ", ".join(map(quoted, texts)) + ")"


class Draw:
    """Random texts and conditions whose parts often coincide."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)

    def text(self, longest: int = 9) -> str:
        r = self.random
        kind = r.random()
        if kind < 0.1:
            return f"10.{r.randint(0, 3)}.{r.randint(0, 255)}.1" if r.random() < 0.8 else "fe80::1"
        if kind < 0.3:
            some = ["red", "Bike", "old", "ÉTÉ", "e\u0301t", "straße", "10", "x'y"]
            return r.choice([" ", ", ", "-", "_"]).join(r.choices(some, k=r.randint(1, 4)))
        signs = r.choice(["ab", "aB%_\\", "aäßÄ€", "AB\u0301\U0001f600a", "ab\x00\xff\uffff'"])
        return "".join(r.choices(signs, k=r.randint(0, longest)))

    def pattern(self) -> str:
        r = self.random
        made = ""
        for _ in range(r.randint(0, 5)):
            kind = r.random()
            if kind < 0.35:
                made += "%" * r.choice([1, 1, 3])
            elif kind < 0.5:
                made += "_" * r.randint(1, 2)
            else:
                made += re.sub(r"([%_\\])", r"\\\1", self.text(3))
        return made

    def condition(self) -> Condition:
        r = self.random
        kind = r.choice(["like"] * 4 + ["starts_with", "ends_with", "contains", "equal", "in"])
        kind = r.choice([kind] * 4 + ["all", "any", "cidr"])
        fold = r.random() < 0.3 and kind not in ("all", "any", "cidr")
        if kind == "cidr":
            nets = ["10.0.0.0/8", "10.1.0.0/16", "10.2.3.0/24", "fe80::/10", "0.0.0.0/0", "::/0"]
            return kind, r.sample(nets, r.randint(1, 2)), fold
        if kind in ("all", "any"):
            some = ["red", "bike", "OLD", "red bike", "été", "e\u0301t", "STRASSE", "10", "a"]
            return kind, r.sample(some, r.randint(1, 3)), fold
        if kind == "like":
            return kind, self.pattern(), fold
        if kind == "in":
            count = r.choice([2, 5, 80])
            return kind, [self.text(4) for _ in range(count)], fold
        if kind == "equal":
            return kind, [self.text(3)], fold
        return kind, self.text(4), fold

    def written(self, condition: Condition, name: str, *, negated: bool) -> str:
        """A condition as a filter."""
        r = self.random
        kind, given, fold = condition
        no = "not " if negated else ""
        if kind in ("all", "any"):
            return f"{no}words({name}) has {kind} {listed(given)}"
        if kind == "cidr":
            return f"{name} {no}in cidr {listed(given)}"
        if kind == "in":
            text = f"{name} {no}in {listed(given)}"
        elif kind == "equal":
            text = f"{name} {'!=' if negated else '='} {quoted(given[0])}"
        elif kind == "like" or (kind == "contains" and r.random() < 0.5):
            text = f"{name} {no}{kind} {quoted(given)}"
        else:
            text = f"{no}{kind}({name}, {quoted(given)})"
        return text + " ignore case" * fold
