"""The page about a run of matching: correctness, matches by subscription and value, speed.

It is made of plain numbers and arrays (`MatchReport`). Parts without data are left out.
"""

from __future__ import annotations

import numpy as np

from rangecast.report import match_plots as plots
from rangecast.report.facts import MatchReport
from rangecast.report.html import Html, card, cards, page, section, share, table, tag, tile, tiles
from rangecast.report.markdown import cell


def match_page(report: MatchReport) -> str:
    """Return the HTML page of a matching report."""
    parts = [_overview(report), _proofs(report), _subscriptions(report), _best(report)]
    parts += [_unwanted(report), _regions(report), _speed(report), _facts(report)]
    return page(report.title, report.lead, *(p for p in parts if p is not None), foot=report.foot)


def percent(part: float, whole: float) -> str:
    """Return a share as a percentage: 12%, 0.4%."""
    value = 100.0 * part / whole if whole else 0.0
    return f"{value:.0f}%" if value >= 9.95 or value == 0 else f"{value:.2g}%"


def short(count: float) -> str:
    """Return a count with three significant digits: 1.24 million, 18,300."""
    for size, name in ((1e9, " billion"), (1e6, " million")):
        if count >= size:
            return f"{count / size:.3g}{name}"
    return f"{count:,.0f}" if count < 10_000 else f"{float(f'{count:.3g}'):,.0f}"


def _overview(report: MatchReport) -> Html:
    matches = int(report.per_event.sum())
    idle = int((report.per_subscription == 0).sum())
    counts = report.per_event if report.events else np.zeros(1, np.int64)
    shown = [
        tile("Events", short(report.events)),
        tile("Subscriptions", short(len(report.per_subscription)), f"{idle:,} without a match"),
        tile("Matches", short(matches), f"{counts.mean():,.1f} an event"),
        tile(
            "Unwanted",
            percent(report.unwanted, report.events),
            f"{report.unwanted:,} events matched nothing",
        ),
    ]
    for stage in report.stages:
        if stage.events:
            rate = stage.events / max(stage.seconds, 1e-9)
            shown.append(tile(stage.name, f"{short(rate)}/s", f"events, {stage.seconds:.1f} s"))
    if report.proofs:
        good = all(proof.holds for proof in report.proofs)
        *names, last = (proof.name.lower() for proof in report.proofs)
        listed = f"{', '.join(names)} and {last}" if names else last
        verdict = ("Right", f"{listed}, every event") if good else ("Wrong", "see below")
        shown.append(tile("Verified", *verdict, kind="good" if good else "bad"))
    return tiles(*shown)


def _proofs(report: MatchReport) -> Html | None:
    if not report.proofs:
        return None
    headings = ("result", "verdict", "events", "matches", "missing", "extra", "twice", "other")
    rows = [
        (
            proof.name,
            "✓ correct" if proof.holds else "✗ incorrect",
            *(f"{count:,}" for count in proof[1:-1]),
        )
        for proof in report.proofs
    ]
    return section(
        "Is it correct?",
        "The local engine answered every event again, and the set of subscriptions of each event "
        "was compared with the one that was written, id by id"
        + ("; ranks one by one, by sorting all matches." if report.best else "."),
        table(headings, rows, numbers="events,matches,missing,extra,twice,other"),
    )


def _subscriptions(report: MatchReport) -> Html:
    counts = np.sort(report.per_subscription)[::-1]
    total, idle = int(counts.sum()), int((counts == 0).sum())
    leading = max(1, len(counts) // 100)
    part = percent(counts[:leading].sum(), total)
    median = np.median(counts[counts > 0]) if total else 0
    histogram = card(
        plots.per_subscription(counts),
        "Matches of a subscription",
        f"Half of those that matched at all had {median:,.0f} matches or more; "
        f"{idle:,} of {len(counts):,} ({percent(idle, len(counts))}) had none.",
    )
    shares = card(
        plots.concentration(counts),
        "How evenly matches are spread",
        f"The busiest 1% of subscriptions ({leading:,}) get {part} of all matches. On the dashed "
        "line, all would get the same.",
    )
    per_event = report.per_event if report.events else np.zeros(1, np.int64)
    low, high = np.quantile(per_event, [0.05, 0.95])
    events = card(
        plots.per_event(per_event),
        "Matches of an event",
        f"Nine events in ten go to between {low:,.0f} and {high:,.0f} subscriptions; the most "
        f"popular one went to {per_event.max():,}.",
    )
    content = [cards(histogram, shares, events, three=True)]
    if report.busiest:
        most = max(1, report.busiest[0].matches)
        rows = [
            (
                subscription.subscription,
                f"{subscription.matches:,}",
                share(percent(subscription.matches, report.events), subscription.matches / most),
                tag("code", subscription.filter),
            )
            for subscription in report.busiest
        ]
        content.append(tag("h3", "The busiest", style="margin-top:24px"))
        headings = ("subscription", "matches", "of all events", "filter")
        content.append(table(headings, rows, numbers="matches"))
    if report.idle:
        waiting = [(name, tag("code", text)) for name, text in report.idle]
        content.append(tag("h3", "Some without a match", style="margin-top:24px"))
        content.append(table(("subscription", "filter"), waiting))
    return section(
        "Matches by subscription",
        f"{len(counts) - idle:,} of {len(counts):,} subscriptions had a match, and an event went "
        f"to {per_event.mean():,.1f} of them on average.",
        *content,
    )


def _best(report: MatchReport) -> Html | None:
    if not report.best:
        return None
    rows = [
        (event.event if not rank else "", str(rank + 1), name, f"{score:g}", tag("code", text))
        for event in report.best
        for rank, (name, score, text) in enumerate(event.best)
    ]
    return section(
        "The best of each event",
        "Where there is room for few, ranking finds the best of those that match an event without "
        "finding all the others. By score; of equal ones, the one that arrived first.",
        table(("event", "rank", "subscription", "score", "filter"), rows, numbers="rank,score"),
    )


def _unwanted(report: MatchReport) -> Html:
    shown = []
    if report.over_time is not None:
        shares = report.over_time.unwanted / np.maximum(report.over_time.events, 1)
        worst = plots.moment(np.asarray(report.over_time.labels)[int(np.argmax(shares))])
        shown.append(
            card(
                plots.unwanted_over_time(report.over_time),
                "Events without a match, over time",
                f"The share of events that matched nothing (line) above how many events there were "
                f"(bars). It was highest, {percent(shares.max(), 1)}, at {worst}.",
            )
        )
    if report.by_value is not None:
        shares = report.by_value.unwanted / np.maximum(report.by_value.events, 1)
        worst = str(report.by_value.labels[int(np.argmax(shares))])
        shown.append(
            card(
                plots.unwanted_by_value(report.by_value),
                f"Events without a match, by {report.by_value.attribute}",
                f"The share of each {report.by_value.attribute}'s events that matched nothing: "
                f"most in {worst}, {percent(shares.max(), 1)}.",
            )
        )
    part = percent(report.unwanted, report.events)
    return section(
        "Events without a match",
        f"{report.unwanted:,} of {report.events:,} events ({part}) "
        "matched no subscription. If they cluster, a kind of event has no subscriptions.",
        cards(*shown),
    )


def _regions(report: MatchReport) -> Html | None:
    region = report.region
    if region is None:
        return None
    ratio = region.matches / np.maximum(region.events, 1)
    row, column = np.unravel_index(int(np.argmax(region.matches)), region.matches.shape)
    hottest = (
        f"{region.x} {cell(region.x_edges[column])} to {cell(region.x_edges[column + 1])}, "
        f"{region.y} {cell(region.y_edges[row])} to {cell(region.y_edges[row + 1])}"
    )
    return section(
        "Hot regions",
        f"The space seen from two of its attributes, {region.x} and {region.y}: events, matches, "
        "and matches per event by location.",
        cards(
            card(
                plots.density(region, region.events, "events", 0),
                "Where events lie",
                "Events in each cell; the scale is logarithmic.",
            ),
            card(
                plots.density(region, region.matches, "matches", 1),
                "Where matches happen",
                f"Matches in each cell. The hottest: {hottest}.",
            ),
            card(
                plots.density(region, ratio, "matches per event", 3),
                "Matches per event",
                "Matches divided by events: strongest where few events meet many subscriptions.",
            ),
            three=True,
        ),
    )


def _speed(report: MatchReport) -> Html | None:
    if not report.stages and not report.stream:
        return None
    shown = []
    batch = next((stage for stage in report.stages if stage.events), None)
    if report.stream:
        rates = [row.events / max(row.seconds, 1e-9) for row in report.stream]
        shown.append(
            card(
                plots.stream_rates(report.stream, batch),
                "The stream, batch by batch",
                f"Events per second in each of {len(rates)} micro-batches, half of them above "
                f"{short(float(np.median(rates)))}; a line shows where a new version of the "
                "subscriptions took over, the dashed one how fast the batch job was.",
            )
        )
        shown.append(
            card(
                plots.stream_matches(report.stream),
                "What the stream found",
                f"Matches per event in each micro-batch. {report.changes}".strip(),
            )
        )
    if report.stages:
        total = sum(stage.seconds for stage in report.stages)
        shown.append(
            card(
                plots.stages(report.stages),
                "Where the time went",
                f"Seconds of each part; {total:.0f} s together.",
            )
        )
    return section(
        "How fast",
        "Wall-clock time, from the first row read to the last row on disk, all of Spark included.",
        cards(*shown, three=True),
    )


def _facts(report: MatchReport) -> Html | None:
    if not report.facts:
        return None
    return section(
        "How it was computed", "What ran, on what.", table(("", ""), report.facts.items())
    )
