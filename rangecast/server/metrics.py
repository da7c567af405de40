"""The server's numbers, as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rangecast.server.connectors.base import SourceState
from rangecast.server.links.broker_thread import REFUSALS, TENANT
from rangecast.server.links.manager import Links
from rangecast.server.replication.follower import Follower
from rangecast.server.status import listeners, log_bytes, subscriptions

if TYPE_CHECKING:
    from rangecast.server.service import Service

KIND = "text/plain; version=0.0.4; charset=utf-8"


def exposition(service: Service, tenant: str | None) -> tuple[bytes, str]:
    """Return the metrics as a text, and its type: those of a tenant, or of all."""
    return exposed(_Numbers(service, tenant)), KIND


def exposed(numbers: Collector) -> bytes:
    """Return metrics as a text."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(numbers)
    return generate_latest(registry)


def counted(prefix: str, counters: Mapping[str, tuple[str, float]]) -> Iterator[Metric]:
    """Yield numbers that only grow, each given as what it is and its value."""
    for name, (text, value) in counters.items():
        yield CounterMetricFamily(f"{prefix}_{name}", text, value)


def measured(prefix: str, gauges: Mapping[str, tuple[str, float]]) -> Iterator[Metric]:
    """Yield numbers that come and go, each given as what it is and its value."""
    for name, (text, value) in gauges.items():
        yield GaugeMetricFamily(f"{prefix}_{name}", text, value)


def _links(links: Links) -> Iterator[Metric]:
    told = links.status()
    up = GaugeMetricFamily(
        "rangecast_link_up", "1 if the link to a neighbour can be used.", labels=["broker"]
    )
    flying = GaugeMetricFamily(
        "rangecast_link_in_flight",
        "Events that were sent to a neighbour and aren't on its disk yet.",
        labels=["broker"],
    )
    for one in told["links"]:
        up.add_metric([one["broker"]], int(one["state"] == "up"))
        flying.add_metric([one["broker"]], one["in_flight"])
    yield from (up, flying)
    counts = told["counts"]
    refused = sum(counts.get(name, 0) for name in REFUSALS)
    parted = counts.get("histories that parted", 0)
    numbers = {
        "gaps": ("Times that a neighbour needed what retention had dropped.", told["gaps"]),
        "refusals": ("Links that were refused, here or by the neighbour.", refused),
        "histories_parted": ("Times that a neighbour had events that this log lacks.", parted),
        "failures": ("Times that an internal error has ended all links.", told["failures"]),
    }
    yield from counted("rangecast_link", numbers)


def _sources(sources: Iterable[SourceState]) -> Iterator[Metric]:
    counters = {
        "events": "Events of a source that were taken.",
        "rejected": "Messages of a source that are no events of its space.",
        "failures": "Attempts of a source that failed.",
        "skipped": "Messages of a source that failed again and again, and were skipped.",
        "gaps": "Times that messages of a source were deleted before they were read.",
        "missed": "Messages of a source that were deleted before they were read, at most.",
        "recreations": "Times that a source's topic or stream was deleted and made again.",
    }
    counted = {
        name: CounterMetricFamily(f"rangecast_source_{name}", text, labels=["source"])
        for name, text in counters.items()
    }
    said = "1 if a source fails at the same messages again and again."
    stuck = GaugeMetricFamily("rangecast_source_stuck", said, labels=["source"])
    for one in sources:
        for name, metric in counted.items():
            metric.add_metric([one.name], getattr(one, name))
        stuck.add_metric([one.name], int(one.is_stuck))
    yield from (*counted.values(), stuck)


def _follower(follower: Follower) -> Iterator[Metric]:
    age = follower.contact_age
    gauges: dict[str, tuple[str, float]] = {
        "ready": ("1 if the copy is complete and not stale.", int(not follower.why_not_ready())),
        "stopped": ("1 if the leader has another history.", int(follower.state == "stopped")),
        "lag": ("Seqs of the leader that aren't here, by its last answer.", follower.lag),
    }
    if age is not None:
        gauges["contact_age_seconds"] = ("Seconds since the leader last answered.", age)
    yield from measured("rangecast_follower", gauges)
    said = "Attempts to copy from the leader that failed."
    yield from counted("rangecast_follower", {"failures": (said, follower.failures)})


class _Numbers(Collector):
    """Reads the numbers when they are asked for: nothing is counted twice."""

    def __init__(self, service: Service, tenant: str | None):
        self._service = service
        self._tenant = tenant

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        service, pump, tenant = self._service, self._service.pump, self._tenant
        done, overflows = pump.matching.done(tenant), service.hub.overflows
        counters = {
            "events": ("Events that were matched.", done.events),
            "matches": ("Pairs of an event and a subscription that matches it.", done.pairs),
            "edits": ("Edits that were made.", done.edits),
            "overflows": (
                "Times that a listener fell behind and turned to reading the log.",
                overflows.total() if tenant is None else overflows[tenant],
            ),
        }
        gauges = {
            "durable_seq": ("The last seq that is durable.", pump.durable),
            "matched_seq": ("The last seq that is matched.", pump.matched),
            "first_seq": ("The first seq that the log still has.", service.log.first),
            "disk_full": ("1 if the last write found the disk full.", int(pump.is_full)),
            "listeners": ("Listeners that are open.", listeners(service, tenant)),
            "subscriptions": ("Live subscriptions.", subscriptions(service, tenant)),
            "log_bytes": ("Bytes of the log on the disk.", log_bytes(service, tenant)),
        }
        if tenant is None:  # of the process: they would tell what other tenants do
            counters["commits"] = ("Groups that were written to the log.", pump.groups)
            gauges["waiting_bytes"] = ("Bytes that wait to be written.", pump.waiting_bytes)
            damaged = "Places of the log that were found damaged."
            gauges["log_damaged"] = (damaged, len(service.log.damage))
        yield from counted("rangecast", counters)
        yield from measured("rangecast", gauges)
        behind = GaugeMetricFamily(
            "rangecast_consumer_behind",
            "Seqs between what a consumer has acknowledged and the end of the log.",
            labels=["tenant", "consumer"],
        )
        dead_letters = GaugeMetricFamily(
            "rangecast_dead_letters",
            "Messages that could not be delivered to a consumer.",
            labels=["tenant", "consumer"],
        )
        stopped = GaugeMetricFamily(
            "rangecast_consumer_stopped",
            "1 if the push delivery of a consumer has stopped.",
            labels=["tenant", "consumer"],
        )
        for one in list(service.registry.consumers.values()):
            if tenant not in (None, one.tenant):
                continue
            labels = [one.tenant, one.name]
            behind.add_metric(labels, pump.durable - one.cursor)
            dead_letters.add_metric(labels, len(one.dead_letters))
            stopped.add_metric(labels, int(bool(one.stopped)))
        yield from (behind, dead_letters, stopped)
        if service.sources and tenant in (None, TENANT):
            yield from _sources(list(service.sources.values()))
        if service.follower is not None:
            yield from _follower(service.follower)
        if service.links is not None and tenant in (None, TENANT):
            yield from _links(service.links)
