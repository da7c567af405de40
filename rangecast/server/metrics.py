"""The server's numbers, as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rangecast.server.links.driver import TENANT
from rangecast.server.links.links import Links

if TYPE_CHECKING:
    from rangecast.server.service import Service

KIND = "text/plain; version=0.0.4; charset=utf-8"


def exposition(service: Service, tenant: str | None) -> tuple[bytes, str]:
    """Return the metrics as a text, and its type; of consumers, those of a tenant or of all."""
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
    said = "Times that a neighbour needed what retention had dropped."
    yield from counted("rangecast_link", {"gaps": (said, told["gaps"])})


class _Numbers(Collector):
    """Reads the numbers when they are asked for: nothing is counted twice."""

    def __init__(self, service: Service, tenant: str | None):
        self._service = service
        self._tenant = tenant

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        service, pump, hub = self._service, self._service.pump, self._service.hub
        done = pump.matching
        counters = {
            "events": ("Events that were matched.", done.events),
            "matches": ("Pairs of an event and a subscription that matches it.", done.pairs),
            "edits": ("Edits that were made.", done.edits),
            "commits": ("Groups that were written to the log.", pump.groups),
            "overflows": (
                "Times that a listener fell behind and turned to reading the log.",
                hub.overflows,
            ),
        }
        yield from counted("rangecast", counters)
        feeds = sum(map(len, hub.feeds.values()))
        gauges = {
            "durable_seq": ("The last seq that is durable.", pump.durable),
            "matched_seq": ("The last seq that is matched.", pump.matched),
            "first_seq": ("The first seq that the log still has.", service.log.first),
            "waiting_bytes": ("Bytes that wait to be written.", pump.waiting_bytes),
            "disk_full": ("1 if the last write found the disk full.", int(pump.is_full)),
            "listeners": ("Listeners that are open.", feeds),
            "subscriptions": (
                "Live subscriptions.",
                sum(service.registry.counts.values()),
            ),
            "log_bytes": ("Bytes of the log on the disk.", service.log_bytes),
        }
        yield from measured("rangecast", gauges)
        behind = GaugeMetricFamily(
            "rangecast_consumer_behind",
            "Seqs between what a consumer has acknowledged and the end of the log.",
            labels=["tenant", "consumer"],
        )
        letters = GaugeMetricFamily(
            "rangecast_dead_letters",
            "Messages that a consumer's way out couldn't deliver.",
            labels=["tenant", "consumer"],
        )
        stopped = GaugeMetricFamily(
            "rangecast_consumer_stopped",
            "1 if a consumer's way out delivers no more.",
            labels=["tenant", "consumer"],
        )
        for one in list(service.registry.consumers.values()):
            if self._tenant not in (None, one.tenant):
                continue
            labels = [one.tenant, one.name]
            behind.add_metric(labels, pump.durable - one.cursor)
            letters.add_metric(labels, len(one.letters))
            stopped.add_metric(labels, int(bool(one.stopped)))
        yield from (behind, letters, stopped)
        if service.links is not None and self._tenant in (None, TENANT):
            yield from _links(service.links)
