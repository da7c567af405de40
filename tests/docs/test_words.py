"""The check of words finds what breaks the writing rules, and nothing else."""

import pytest

from tests.tools import words

TEXTS = ["as a text", "bytes a box", "in the mean"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('"""What a thing is."""\n', ["What"]),
        ('"""Return what a thing is."""\n', []),
        ('LIMIT = 3\n"""How long it takes."""\n', ["How"]),
        ("# the client who asks\n", ["who"]),
        ('raise ValueError("nobody wants it")\n', ["nobody"]),
        ('raise ValueError(f"{3} is wrong\\n  to do: give 4")\n', ["to do"]),
        ('raise ValueError(f"{3} is wrong\\n  hint: give 4")\n', []),
        ('"""Stop after so many events."""\n', ["so many"]),
        ('"""Return so many as there are."""\n', []),
        ('"""At most so many as fit."""\n', ["At most so many"]),
        ('"""Numbers by themselves, again and again."""\n', ["again and again", "by themselves"]),
        ('"""A server reconnects by itself."""\n', ["by itself"]),
        ('"""A server reconnects itself."""\n', []),
        ('"""Return an id as a text: 8 bytes a box in the mean."""\n', TEXTS),
        ('def is_full():\n    """Whether it is full."""\n', ["Whether"]),
        ('@property\ndef is_full():\n    """Whether it is full."""\n', []),
        ('"""The k best, of what was found."""\n', ["k best", "what was found"]),
        ('"""Write a line a batch."""\n', ["a line a batch"]),
        ('"""Write one line per batch."""\n', []),
        ("def take(most_bytes, _least_x, almost_all): ...\n", ["_least_x", "most_bytes"]),
        ("from rangecast import Gathering, Gatherings\n", ["Gathering"]),
    ],
)
def test_a_module(text, found):
    assert sorted(each.text for each in words.check("a.py", text)) == found


def test_of_experiments_only_the_beginnings_of_docstrings():
    found = words.check("experiments/a.py", '"""What nobody knows."""\n# so many\n')
    assert [each.text for each in found] == ["What"]


def test_the_prose_of_a_page_but_not_its_code():
    text = "A server, he is told.\n\n```text\nwho\n```\n\nThe option `who`; nobody.\n"
    found = [(each.line, each.text) for each in words.check("a.md", text)]
    assert found == [(1, "he"), (1, "told"), (7, "nobody")]


def test_what_is_allowed_is_needed():
    """A phrase of the list that no file has any more leaves the list."""
    text = {path: " ".join(path.read_text().split()) for path in words.files()}
    for path, phrases in words.allowed().items():
        texts = text.values() if path == "*" else [text[words.ROOT / path]]
        for phrase in phrases:
            assert any(phrase in each for each in texts), f"{path}: {phrase}"
