"""The worked examples say what a plain loop over everything says."""

import contextlib
import io
import re
import runpy
import shutil
import subprocess
import sys
from collections import defaultdict
from datetime import timedelta

import nbformat
import pytest

from rangecast.workloads import generate
from tests import ROOT

EXAMPLES = ROOT / "examples"
PAGE = (ROOT / "docs" / "tutorials" / "examples.md").read_text()


def run(name):
    """An example's functions, what its `main` returns, and what it prints."""
    names = runpy.run_path(str(EXAMPLES / name))
    with contextlib.redirect_stdout(io.StringIO()) as said:
        returned = names["main"]()
    return names, returned, said.getvalue()


def test_alerts_ring_as_a_plain_loop_says():
    names, rung, said = run("price_alerts.py")
    assert said in PAGE
    quotes = generate("market", seed=1, subscriptions=1, events=10_000).tables["events"]
    first = names["drawn"](quotes, 1_000, 0.02)
    changed, left = names["later"](first, quotes)
    second = {one.id: one for one in first} | {one.id: one for one in changed}
    second = [one for one in second.values() if one.id not in set(left)]
    watched = [defaultdict(list), defaultdict(list)]
    for when, alerts in zip(watched, (first, second), strict=True):
        for one in alerts:
            when[one.symbol].append(one)
    expected, rang = [], {}
    for number, quote in enumerate(quotes.to_pylist()):
        for one in watched[number >= 5_000][quote["symbol"]]:
            holds = quote["price"] < one.low or quote["price"] > one.high
            rests = one.id in rang and quote["time"] - rang[one.id] < timedelta(minutes=30)
            if holds and not rests:
                rang[one.id] = quote["time"]
                expected.append((one.id, quote["id"]))
    assert rung == expected
    assert {number >= 5_000 for _, number in rung} == {False, True}


def test_offers_are_shown_as_one_view_at_a_time_would():
    names, shown, said = run("offers/budgets.py")
    assert said in PAGE
    offers, views = names["drawn"](1_000, 5_000)
    offers.sort(key=lambda offer: -offer.bid)  # of equal ones the first stays the first
    left = {offer.id: offer.budget for offer in offers}
    for view, found in zip(views, shown, strict=True):
        best = [
            offer
            for offer in offers
            if offer.ages[0] <= view["age"] <= offer.ages[1] and view["credit"] > offer.credit
        ][:3]
        assert found == [offer.id for offer in best]
        for offer in best:
            left[offer.id] -= offer.bid
            if left[offer.id] < offer.bid:
                offers.remove(offer)
    assert len(offers) < 800, "few budgets were spent"


@pytest.mark.process
def test_the_notebook_gives_what_it_shows(tmp_path):
    copy = shutil.copy(EXAMPLES / "geofences.ipynb", tmp_path)
    # In a process of its own: nbclient leaves sockets open, which pytest takes for an error.
    execute = "from nbclient.cli import main; main()"
    command = [sys.executable, "-c", execute, "--inplace", "--timeout=60", copy]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    given, shown = outputs(copy), outputs(EXAMPLES / "geofences.ipynb")
    assert given == shown
    printed = "".join(one.text for cell in given for one in cell if "text" in one)
    (quoted,) = re.findall(r"```text\n([\d,]+ pairs.*?)```", PAGE, re.DOTALL)
    assert quoted in printed


def outputs(notebook):
    """The outputs of each cell, without the progress of kernels that aren't compiled yet."""
    cells = nbformat.read(notebook, as_version=4).cells
    return [
        [one for one in cell.outputs if not one.get("text", "").startswith("compiling kernels: ")]
        for cell in cells
        if cell.cell_type == "code"
    ]
