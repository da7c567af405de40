"""The page: whole in one file, escaped everywhere, with the numbers that it was given."""

import re
from html.parser import HTMLParser

import numpy as np
import pyarrow as pa
import pytest

from rangecast.model.encoding.events import encode_events
from rangecast.model.encoding.subscriptions import encode_subscriptions
from rangecast.model.space import Space
from rangecast.report import match_plots
from rangecast.report.facts import (
    BusySubscription,
    Group,
    MatchReport,
    MicroBatch,
    Proof,
    Region,
    Stage,
)
from rangecast.report.html import Html, page, table, tag
from rangecast.report.match import match_page, percent, short
from rangecast.report.plots import COLOURS, Svg, plot
from rangecast.report.tally import tally

EVIL = "<script>alert('x')</script> & \"quoted\" $a_{$"


class Elements(HTMLParser):
    """Collects elements and texts; rejects elements that don't close."""

    def __init__(self, text):
        super().__init__()
        self.open, self.seen, self.text = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, name, attributes):
        self.seen.append((name, dict(attributes)))
        if name != "meta":
            self.open.append(name)

    def handle_startendtag(self, name, attributes):
        self.seen.append((name, dict(attributes)))

    def handle_endtag(self, name):
        assert self.open.pop() == name

    def handle_data(self, data):
        self.text.append(data)

    def count(self, name):
        return sum(1 for each, _ in self.seen if each == name)


def whole(**changes):
    x = np.geomspace(1, 1000, 9)
    times = np.datetime64("2026-01-30T14:30", "us") + np.arange(5) * np.timedelta64(30, "m")
    counts = np.arange(72).reshape(8, 9)[:, :8]
    given = {
        "title": f"Title {EVIL}",
        "lead": f"Lead {EVIL}",
        "per_event": np.array([0, 1, 5, 20, 300, 0]),
        "per_subscription": np.array([0, 0, 3, 23, 300]),
        "busiest": [
            BusySubscription(f"id {EVIL}", 300, f"filter {EVIL}"),
            BusySubscription("b", 23, "x < 5"),
        ],
        "idle": [(f"idle {EVIL}", "x > 9")],
        "over_time": Group("when", times, np.array([5, 4, 3, 2, 3]), np.array([0, 1, 0, 2, 1])),
        "by_value": Group("kind", [f"v {EVIL}", "b"], np.array([5, 6]), np.array([1, 6])),
        "region": Region("x", "y", x, np.linspace(0, 1, 9), counts, counts * 7),
        "stages": [
            Stage(f"stage {EVIL}", 1.5),
            Stage("Batch", 2.0, 100),
            Stage("Stream", 4.0, 100),
        ],
        "stream": [MicroBatch(50, 70, 0.5, 1), MicroBatch(50, 700, 0.25, 2)],
        "changes": f"changes {EVIL}",
        "proofs": [Proof(f"batch {EVIL}", 6, 326, 0, 0, 0, 0, True)],
        "facts": {f"fact {EVIL}": f"value {EVIL}"},
        "foot": f"foot {EVIL}",
    }
    return MatchReport(**(given | changes))


def test_a_page_needs_nothing_beside_it_and_runs_nothing():
    written = match_page(whole())
    elements = Elements(written)
    assert not {"script", "link", "iframe", "object"} & {name for name, _ in elements.seen}
    for name, attributes in elements.seen:
        for key, value in attributes.items():
            assert not key.startswith("on")
            if key in ("src", "href", "xlink:href"):
                assert value.startswith(("#", "data:image/png;base64,")), (name, key, value)
    assert "@import" not in written
    assert not re.findall(r"url\((?!#)", written)
    assert elements.count("svg") == elements.count("figure") == 11


def test_no_text_is_taken_for_markup():
    elements = Elements(match_page(whole()))
    said = "".join(elements.text)
    for word in ("Title", "Lead", "id", "filter", "idle", "v", "stage", "changes", "fact", "foot"):
        assert f"{word} {EVIL}" in said
    assert tag("p", "a < b", class_='"') == '<p class="&quot;">a &lt; b</p>'
    assert tag("p", Html("<b>")) == "<p><b></p>"
    assert "<td>&lt;i&gt;</td>" in table(("a", "b"), [("<i>", "1")], numbers="b")
    assert page("<t>", "<l>").count("&lt;t&gt;") == 2


def test_the_numbers_are_on_the_page():
    said = "".join(Elements(match_page(whole())).text)
    for text in (
        "2 events matched nothing",
        "2 of 6 events (33%) matched no subscription",
        "54.3 an event",
        "2 of 5 (40%) had none",
        "version 2",
        "✓ correct",
        "2026-01-30 16:00",
        "most in b, 100%",
        "50/s",
        "25/s",
    ):
        assert text in said, text
    wrong = whole(proofs=[Proof("batch", 6, 326, 1, 0, 0, 0, False)])
    said = "".join(Elements(match_page(wrong)).text)
    assert "✗ incorrect" in said
    assert "Wrong" in said


def test_parts_without_data_are_left_out():
    nothing = MatchReport("Empty", "", np.zeros(0, np.int64), np.zeros(0, np.int64))
    elements = Elements(match_page(nothing))
    assert elements.count("svg") == 3
    said = "".join(elements.text)
    assert "Hot regions" not in said
    assert "How fast" not in said
    one = whole(per_event=np.array([0]), per_subscription=np.array([0]), busiest=[], stream=[])
    Elements(match_page(one))


def test_a_plot_in_a_page_has_the_pages_colours_and_a_file_its_own(tmp_path):
    drawn = Svg("a <label>")
    with plot(drawn, title="t", x="x", y="y") as axes:
        axes.plot([1, 2], [3, 4])
    assert drawn.text.startswith('<svg role="img" aria-label="a &lt;label&gt;" viewBox="0 0 ')
    assert COLOURS[0] not in drawn.text
    for variable in ("var(--ink)", "var(--line)", "var(--c0)"):
        assert variable in drawn.text
    with plot(tmp_path / "p.svg", title="t") as axes:
        axes.plot([1, 2], [3, 4])
    assert COLOURS[0] in (tmp_path / "p.svg").read_text()


@pytest.mark.parametrize(
    ("given", "said"),
    [(0, "0"), (999, "999"), (9_999, "9,999"), (18_349, "18,300"), (1_240_000, "1.24 million")],
)
def test_counts_in_three_digits(given, said):
    assert short(given) == said


def test_shares():
    assert [percent(p, 1000) for p in (0, 4, 99, 100, 999)] == ["0%", "0.4%", "9.9%", "10%", "100%"]
    assert percent(1, 0) == "0%"


# ---------------------------------------------------------------- counting

SPACE = """
[[attribute]]
name = "x"
type = "number"
[[attribute]]
name = "n"
type = "integer"
[[attribute]]
name = "kind"
type = "category"
values = ["a", "b", "c"]
[[attribute]]
name = "at"
type = "timestamp"
"""


def counted(form, **options):
    space = Space.from_toml(SPACE)
    filters = ["x < 5", "kind = 'b' or x > 7", "n = 99", "true"]
    given = pa.table({"id": ["low", "b", "never", "all"], "filter": filters})
    boxes = encode_subscriptions(given, space)
    rows = {"id": [7, 8, 9], "x": [1.0, 8.0, None], "n": [1, 2, 3], "kind": ["b", "c", "b"]}
    events = pa.table(
        rows | {"at": ["2026-01-01T00:00Z", "2026-01-01T01:00Z", "2026-01-02T00:00Z"]}
    )
    found = {7: ["low", "b", "all"], 8: ["b", "all"]}  # and nothing of 9, whatever is right
    if form == "pairs":
        pairs = [(event, one) for event, ones in found.items() for one in ones]
        result = pa.record_batch(
            {"event": [p[0] for p in pairs], "subscription": [p[1] for p in pairs]}
        )
    else:
        result = pa.record_batch({"event": list(found), "subscriptions": list(found.values())})
    return tally([encode_events(events, space)], boxes, space, [result], **options)


@pytest.mark.parametrize("form", ["pairs", "lists"])
def test_matches_are_counted_by_event_and_by_subscription(form):
    made = counted(form)
    assert made.per_event.tolist() == [3, 2, 0]
    assert made.per_subscription.tolist() == [1, 2, 0, 2]
    assert made.busiest(2) == [
        BusySubscription("b", 2, "x > 7 or kind = 'b'"),
        BusySubscription("all", 2, "true"),
    ]
    assert made.idle(5) == [("never", "n = 99")]


def test_events_are_grouped_and_mapped():
    made = counted("pairs")
    group = made.by_value()
    assert (group.attribute, list(group.labels)) == ("kind", ["b", "c"])
    assert (group.events.tolist(), group.unwanted.tolist()) == ([2, 1], [1, 0])
    spans = made.over_time()
    assert (spans.events.sum(), spans.unwanted.tolist()[-1], spans.unwanted.sum()) == (3, 1, 1)
    assert str(spans.labels[0]) == "2026-01-01T00:00:00.000000"
    region = made.region()
    assert (region.x, region.y) == ("x", "n")
    assert (region.events.sum(), region.matches.sum()) == (2, 5)  # 9 lacks x
    other = counted("pairs", map_of=("n", "x")).region()
    assert np.array_equal(other.matches, region.matches.T)


def test_numbers_of_a_page_are_written_out():
    edges, counts = (np.array([2310.0, 2320.0]), np.array([5.0, 7.0])), np.ones((1, 1), np.int64)
    region = Region("x", "y", *edges, counts, counts)
    page = match_page(whole(region=region))
    assert "x 2,310 to 2,320, y 5 to 7" in page


def test_a_short_logarithmic_axis_has_several_ticks():
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    axes.set_xscale("log")
    axes.set_xlim(3, 20)
    match_plots._plain_ticks(axes.xaxis, str)
    assert sum(3 <= tick <= 20 for tick in axes.xaxis.get_majorticklocs()) >= 3
