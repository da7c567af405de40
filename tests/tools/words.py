"""Find words that break the writing rules: `python -m tests.tools.words` lists them, and fails.

It reads the names, docstrings, comments and texts of the package, and the prose of the pages; of
benchmarks and experiments only how docstrings begin.
`words_allowed.txt` has the phrases that are right all the same: a file's path, a colon, the phrase.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests import ROOT

ALLOWED = Path(__file__).with_name("words_allowed.txt")


class Finding(NamedTuple):
    """A place that breaks a rule."""

    path: str
    line: int
    text: str
    advice: str
    around: str
    """The text before and after it, in one line."""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text!r}: {self.advice}"


class Rules:
    """Patterns, each with advice for what matches it."""

    def __init__(self, advice: dict[str, str]):
        self._advice = list(advice.values())
        self._pattern = re.compile(rf"\b(?:{'|'.join(f'({each})' for each in advice)})\b")

    def search(self, text: str) -> Iterator[tuple[re.Match[str], str]]:
        """Yield the matches in a text."""
        for match in self._pattern.finditer(text):
            assert match.lastindex is not None
            yield match, self._advice[match.lastindex - 1]


_THINGS = "line|column|file|row|task|thread|record|message|unit|word"
_STATES = "claimed|counted|found|gone|kept|left|meant|new|old|open|put|there|tried|typed|wanted"
_UNITS = "bytes|edges|instructions|ns|numbers|us|words"
_EACH = "attribute|box|call|cell|edit|entry|event|item|row"
_TEXT = Rules(
    {
        r"[Hh]e|[Hh]im|[Hh]is": "a program is 'it'",
        r"[Ww]ho|[Ww]hom|[Ww]hoever": "a program is 'it': 'the client that'",
        r"[Ss]omebody|[Nn]obody|[Aa]nybody|[Ss]omeone": "name the thing: 'no reader'",
        r"[Ss]o (?:many|long|much)(?! as\b)": "write 'at most N', 'up to N seconds'",
        r"told": "write 'advertised', 'reported', 'notified', 'given'",
        rf"(?:a|one) (?:{_THINGS}) an? \w+": "write 'one line per batch'",
        r"[Pp]roves?": "a result is verified; settings are checked",
        r"to do(?=:)": "an error ends with 'hint:'",
        r"anew|afresh": "write 'again'",
        r"needn't|mustn't": "write 'need not', 'must not'",
        r"[Nn]ow and then|[Ff]rom time to time": "write 'regularly', 'every N seconds'",
        r"[Aa]gain and again": "write 'repeatedly'",
        r"[Aa]t most so many": "write 'at most N'",
        r"by (?:itself|themselves)": "write 'alone', 'automatically', 'separately'",
        r"as a text": "write 'as text'",
        r"[Rr]edundant together": "write 'redundant as a group'",
        r"half-way": "write 'halfway'",
        r"in the mean": "write 'on average'",
        rf"(?:{_UNITS}) an? (?:{_EACH})": "write 'bytes per box'",
        r"k best": "write 'top k'",
        rf"[Ww]hat (?:is|was|are|were) (?:{_STATES})": "name the thing: 'the rest'",
    }
)
"""In docstrings, comments, texts and prose."""
_DOCSTRING = Rules({r"What|Who|Whom|How|Something|Somebody": "start with a verb or a noun"})
"""At the beginning of a docstring."""
_FUNCTION = Rules({r"Whether": "write 'Return whether'; a property may begin so"})
"""At the beginning of the docstring of a function that isn't a property."""
_NOW = {
    "Carried": "ImportResult",
    "NotCarriedError": "UnsupportedRuleError",
    "Gathering": "AsyncEngine",
    "best_many": "rank_many",
    "best_points": "rank_points",
    "Upserted": "UpsertResult",
    "ValueRefusedError": "InvalidValueError",
    "HalfBoard": "UpperBoundBoard",
    "ignore-unknown-columns": "ignore-unknown",
    "bad_rows": "rejected",
    "bad-rows": "rejected",
    "quarantine": "rejected rows",
    "most_told": "max_advertised",
    "knobs": "parameters",
    "worker_bytes": "max_worker_memory",
    "prepare_ranking": "prepare_rank",
    "wait_settled": "wait_propagated",
    "wait=settled": "wait=propagated",
    "IsSettled": "IsPropagated",
    "way out": "push delivery",
    "ways out": "push deliveries",
    "keeping house": "maintenance",
    "set aside": "rejected",
    "holds_many": "may_match_many",
    "chances": "probabilities",
    "sieve": "prefilter",
    "shed": "dropped",
    "subscriptions:check": "filters:preview",
    "subscriptions:covered": "subscriptions:find-covering",
    "from-nats": "nats-source",
    "from-kafka": "kafka-source",
    "keep-days": "retention-days",
    "keep-gigabytes": "retention-gb",
    "consumer_behind": "consumer_lag",
    "waiting_bytes": "commit_queue_bytes",
    "rangecast warm": "rangecast precompile",
}
"""Former names, and those in their place."""
_NAMES = Rules(
    {
        r"_?(?:most|least)_\w+": "limits are max_* and min_*",
        **{re.escape(name): f"the name is {now!r}" for name, now in _NOW.items()},
    }
)
"""In all of a file."""
_AROUND = 60
_BEGINNINGS = ("benchmarks", "experiments")
"""Folders of which only the beginnings of docstrings are read."""
_SUFFIXES = {".py", ".pyi", ".js", ".html", ".md"}
_HISTORY = {"CHANGELOG.md"}
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def findings() -> list[Finding]:
    """Return all places that break a rule and aren't allowed."""
    right, found = allowed(), []
    for path in files():
        text, name = path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix()
        phrases = right.get(name, []) + right.get("*", [])
        for each in check(name, text):
            if not any(one in each.around and each.text in one for one in phrases):
                found.append(each)
    return found


def files() -> list[Path]:
    """Return the files that are read."""
    listed = [*ROOT.glob("rangecast/**/*"), *ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    listed += [path for folder in _BEGINNINGS for path in ROOT.glob(f"{folder}/**/*.py")]
    return sorted(p for p in listed if p.suffix in _SUFFIXES and p.name not in _HISTORY)


def check(path: str, text: str) -> list[Finding]:
    """Return the places of one file that break a rule."""
    parts = _python(text) if path.endswith(".py") else _prose(text)
    found = []
    checked = [*parts, (1, text, _NAMES)]
    if path.startswith(_BEGINNINGS):
        checked = [part for part in checked if part[2] in (_DOCSTRING, _FUNCTION)]
    for first, part, rules in checked:
        for match, advice in rules.search(part):
            line = first + part[: match.start()].count("\n")
            around = part[max(0, match.start() - _AROUND) : match.end() + _AROUND]
            found.append(Finding(path, line, match[0], advice, " ".join(around.split())))
    return sorted(found)


_Part = tuple[int, str, Rules]


def _python(text: str) -> Iterator[_Part]:
    """Yield the comments, docstrings and texts of a module, each with its line and rules."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string, _TEXT
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                said = ast.get_docstring(node)
                if said and not any("property" in ast.unparse(d) for d in node.decorator_list):
                    yield node.body[0].lineno, said.split(maxsplit=1)[0], _FUNCTION
            case ast.Expr(value=ast.Constant(value=str(said))):
                yield node.lineno, said.split(maxsplit=1)[0], _DOCSTRING
            case ast.Constant(value=str(said)):
                yield node.lineno, said, _TEXT
            case _:
                pass


def _prose(text: str) -> Iterator[_Part]:
    """Yield the text of a page without its code, which keeps its lines."""
    without = _FENCE.sub(lambda fence: "\n" * fence[0].count("\n"), text)
    yield 1, re.sub(r"`[^`\n]*`", lambda code: "`" * len(code[0]), without), _TEXT


def allowed() -> dict[str, list[str]]:
    """Return the phrases that are allowed, by the path of their file."""
    phrases: dict[str, list[str]] = {}
    for line in ALLOWED.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            path, phrase = line.split(": ", 1)
            phrases.setdefault(path, []).append(phrase)
    return phrases


def main() -> None:
    """Print the findings."""
    found = findings()
    for each in found:
        print(each)
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
