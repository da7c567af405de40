"""Metrics in the Prometheus text format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rangecast.device_copy import DeviceCopies
from rangecast.server.links.broker_runner import REJECTIONS, TENANT
from rangecast.server.links.manager import Links
from rangecast.server.replication.follower import Follower
from rangecast.server.service import Service
from rangecast.server.state.sources import SourceState
from rangecast.server.status import listeners, log_bytes, subscriptions

KIND = "text/plain; version=0.0.4; charset=utf-8"


def exposition(service: Service, tenant: str | None) -> tuple[bytes, str]:
    """Return the metrics of a tenant, or of all tenants, as text with its content type."""
    return exposed(ServerMetrics(service, tenant)), KIND


def exposed(numbers: Collector) -> bytes:
    """Return the metrics of a collector as text."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(numbers)
    return generate_latest(registry)


def counted(prefix: str, counters: Mapping[str, tuple[str, float]]) -> Iterator[Metric]:
    """Yield counters, given as help text and value by name."""
    for name, (text, value) in counters.items():
        yield CounterMetricFamily(f"{prefix}_{name}", text, value)


def measured(prefix: str, gauges: Mapping[str, tuple[str, float]]) -> Iterator[Metric]:
    """Yield gauges, given as help text and value by name."""
    for name, (text, value) in gauges.items():
        yield GaugeMetricFamily(f"{prefix}_{name}", text, value)


def link_metrics(links: Links) -> Iterator[Metric]:
    """Yield the metrics of links."""
    status = links.status()
    up = GaugeMetricFamily(
        "rangecast_link_up", "1 if the link to a neighbour is up.", labels=["broker"]
    )
    flying = GaugeMetricFamily(
        "rangecast_link_in_flight",
        "Events sent to a neighbour that are not yet durable there.",
        labels=["broker"],
    )
    for link in status["links"]:
        up.add_metric([link["broker"]], int(link["state"] == "up"))
        flying.add_metric([link["broker"]], link["in_flight"])
    yield from (up, flying)
    counts = status["counts"]
    rejected = sum(counts.get(name, 0) for name in REJECTIONS)
    parted = counts.get("histories that parted", 0)
    numbers = {
        "gaps": (
            "Gaps: a neighbour needed events already removed by retention.",
            status["gaps"],
        ),
        "rejections": ("Links rejected, here or by the neighbour.", rejected),
        "histories_parted": (
            "Neighbours with events of this server that its own log lacks.",
            parted,
        ),
        "failures": ("Internal errors that ended all links.", status["failures"]),
    }
    yield from counted("rangecast_link", numbers)


def source_metrics(sources: Iterable[SourceState]) -> Iterator[Metric]:
    """Yield the metrics of sources."""
    counters = {
        "events": "Events read from a source.",
        "rejected": "Messages of a source that are not valid events of its space.",
        "failures": "Failed attempts of a source.",
        "skipped": "Messages of a source skipped after repeated failures.",
        "gaps": "Gaps: messages of a source deleted before they were read.",
        "missed": "Upper bound of the messages of a source deleted before they were read.",
        "recreations": "Deletions and re-creations of the topic or stream of a source.",
    }
    counted = {
        name: CounterMetricFamily(f"rangecast_source_{name}", text, labels=["source"])
        for name, text in counters.items()
    }
    help_ = "1 if a source fails repeatedly on the same messages."
    stuck = GaugeMetricFamily("rangecast_source_stuck", help_, labels=["source"])
    for source in sources:
        for name, metric in counted.items():
            metric.add_metric([source.name], getattr(source, name))
        stuck.add_metric([source.name], int(source.is_stuck))
    yield from (*counted.values(), stuck)


def follower_metrics(follower: Follower) -> Iterator[Metric]:
    """Yield the metrics of a follower."""
    age = follower.contact_age
    gauges: dict[str, tuple[str, float]] = {
        "ready": ("1 if the copy is complete and not stale.", int(not follower.why_not_ready())),
        "stopped": ("1 if the leader has another history.", int(follower.state == "stopped")),
        "lag": ("Entries of the leader's log that are not yet copied.", follower.lag),
    }
    if age is not None:
        gauges["contact_age_seconds"] = ("Seconds since the leader last answered.", age)
    yield from measured("rangecast_follower", gauges)
    help_ = "Failed attempts to copy from the leader."
    yield from counted("rangecast_follower", {"failures": (help_, follower.failures)})


def device_use(device: DeviceCopies | None) -> tuple[int, bool]:
    """Return how many events a device has matched, and whether it failed."""
    return (0, False) if device is None else (device.events, device.failure is not None)


class ServerMetrics(Collector):
    """Reads existing counters at collection time; keeps none of its own."""

    def __init__(self, service: Service, tenant: str | None):
        self._service = service
        self._tenant = tenant

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        service, core, tenant = self._service, self._service.core, self._tenant
        pipeline = core.pipeline
        done, overflows = pipeline.matching.done(tenant), core.hub.overflows
        counters = {
            "events_matched": ("Events matched.", done.events),
            "matches": ("Pairs of an event and a subscription that matches it.", done.pairs),
            "edits_applied": ("Edits applied.", done.edits),
            "listener_overflows": (
                "Live listeners that overflowed and fell back to reading the log.",
                overflows.total() if tenant is None else overflows[tenant],
            ),
        }
        gauges = {
            "durable_seq": ("Last durable seq.", pipeline.durable),
            "matched_seq": ("Last matched seq.", pipeline.matched),
            "first_seq": ("First seq in the log.", core.log.first),
            "disk_full": ("1 if the last write found the disk full.", int(pipeline.is_full)),
            "listeners": ("Open listeners.", listeners(core, tenant)),
            "subscriptions": ("Live subscriptions.", subscriptions(core, tenant)),
            "log_bytes": ("Bytes of the log on the disk.", log_bytes(core, tenant)),
        }
        if tenant is None:  # of the process: they would reveal the work of other tenants
            counters["commits"] = ("Group commits to the log.", pipeline.groups)
            gauges["commit_queue_bytes"] = ("Bytes in the commit queue.", pipeline.queue_bytes)
            damaged = "Damaged places found in the log."
            gauges["log_damaged"] = (damaged, len(core.log.damage))
            on_device, has_failed = device_use(core.device)
            counters["device_events"] = ("Events matched on a device (--device).", on_device)
            failed = "1 after an error of the device: the CPU matches everything."
            gauges["device_failed"] = (failed, int(has_failed))
        yield from counted("rangecast", counters)
        yield from measured("rangecast", gauges)
        lag = GaugeMetricFamily(
            "rangecast_consumer_lag",
            "Log entries after the acknowledged position of a consumer.",
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
        for consumer in list(core.registry.consumers.values()):
            if tenant not in (None, consumer.tenant):
                continue
            labels = [consumer.tenant, consumer.name]
            lag.add_metric(labels, pipeline.durable - consumer.cursor)
            dead_letters.add_metric(labels, len(consumer.dead_letters))
            stopped.add_metric(labels, int(bool(consumer.stopped)))
        yield from (lag, dead_letters, stopped)
        if core.sources and tenant in (None, TENANT):
            yield from source_metrics(list(core.sources.values()))
        if service.follower is not None:
            yield from follower_metrics(service.follower)
        if service.links is not None and tenant in (None, TENANT):
            yield from link_metrics(service.links)
