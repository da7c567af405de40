"""Logs that follow from others: a follower's copy, and what came over a link."""

from __future__ import annotations

from tests.soak.chaos.model.findings import Findings
from tests.soak.chaos.model.matcher import matches
from tests.soak.chaos.model.segments import LogFiles
from tests.soak.chaos.model.state import State


def check_copy(copy: LogFiles, leader: LogFiles, findings: Findings, *, is_whole: bool) -> None:
    """Compare a follower's log with its leader's: a prefix, of equal checksums."""
    if copy.epoch and leader.epoch and copy.epoch != leader.epoch:
        findings.add("copy", f"the copy has the epoch {copy.epoch}, its leader {leader.epoch}")
    for one, other in zip(copy.units, leader.units, strict=False):
        if one != other:
            findings.add("copy", f"the copy differs from its leader at {one.first}", seq=one.first)
            return
    if copy.last > leader.last:
        findings.add("copy", f"the copy goes to {copy.last}, its leader to {leader.last}")
    elif is_whole and copy.last < leader.last:
        findings.add("copy", f"the copy ends at {copy.last}, its leader at {leader.last}")


def check_link(
    home: State, name: str, far: State, fixed: list[str], after: int, findings: Findings
) -> int:
    """Check what came to `far` of the events of `home`, the server of a name: each once, in order,
    as it was published; all that the subscriptions `fixed` of `far` want of those after a seq.
    Return how many came.
    """
    came = [one for one in far.events.values() if one.origin == name]
    numbers = []
    for event in came:
        at_home = home.places.get(event.key, [0])[0]
        numbers.append(at_home)
        if not at_home or home.events[at_home].values != event.values:
            findings.add("link-altered", f"an event of {name} came as {event.values}")
    if numbers != sorted(set(numbers)):
        findings.add("link-order", f"events of {name} came out of order, or twice: {numbers[-20:]}")
    wanted = [far.live[one].wanted for one in fixed if one in far.live]
    if len(wanted) < len(fixed):
        findings.add("live-set", f"of the subscriptions {fixed} only {len(wanted)} live")
    lost = [
        seq
        for seq, event in home.events.items()
        if seq > after
        and not event.origin
        and seq not in set(numbers)
        and any(matches(one, event.values) for one in wanted)
    ]
    if lost:
        findings.add(
            "link-lost", f"{len(lost)} events of {name} never came over the link: {lost[:10]}"
        )
    return len(came)
