"""The server without a network: a `Core`, and everything that runs on it.

service = Service("data")
service.start()          # on the event loop of the listeners
...
service.stop()
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rangecast.errors import RangecastError
from rangecast.server.connectors.kafka import KafkaDelivery
from rangecast.server.connectors.nats import NatsDelivery
from rangecast.server.core import Core
from rangecast.server.delivery.push import Deliveries, DeliverySettings
from rangecast.server.delivery.webhook import Webhook
from rangecast.server.links.broker_runner import MAX_EVENT_BYTES
from rangecast.server.links.manager import LinkOptions, Links
from rangecast.server.log.scrub import Scrub
from rangecast.server.log.sqlite import SqliteLog
from rangecast.server.maintenance import Maintenance, Retention
from rangecast.server.replication.follower import Follower, Leader
from rangecast.server.security.hosts import Hosts


class Service:
    """A core with its maintenance, deliveries, links and follower."""

    def __init__(
        self,
        folder: str | Path | None,
        *,
        durability: str = "fsync",
        retention: Retention | None = None,
        is_open: bool = False,
        allowed_hosts: Sequence[str] = (),
        leader: Leader | None = None,
        allow_private_webhooks: bool = False,
        nats: str | None = None,
        kafka: str | None = None,
        links: LinkOptions | None = None,
        log: str | None = None,
        device: str | None = None,
        stopped: Callable[[BaseException], None] | None = None,
    ):
        """Recover the state from a folder; with `None`, keep everything in memory only.

        is_open         callers on other machines need no token either, as long as none exists
        allowed_hosts   host names that callers may use, besides loopback
        leader          server whose log is copied; nothing else is written here
        nats, kafka     addresses of message buses, for deliveries
        links           options of links to other servers
        log             location of the log, if not in the folder: kafka://HOST:PORT/PREFIX
        device          device that matches large batches of events, such as `cuda`
        """
        self.started_at = time.monotonic()
        self._leader = leader
        try:
            self.core = core = Core(
                folder,
                durability=durability,
                log=log,
                epoch_of_copy=None if leader is None else leader.epoch,
                max_event_bytes=None if links is None else MAX_EVENT_BYTES,
                hosts=Hosts(allowed_hosts, is_open=is_open),
                device=device,
                stopped=stopped,
            )
        except BaseException:
            if leader is not None:
                leader.close()
            raise
        in_files = isinstance(core.log, SqliteLog)  # Kafka verifies what it keeps itself
        self.scrub = Scrub(core.log, core.snapshot_seq if in_files else 0)
        self.maintenance = Maintenance(core, retention or Retention())
        kinds = {"webhook": Webhook, "nats": NatsDelivery, "kafka": KafkaDelivery}
        settings = DeliverySettings(allow_private_webhooks, nats, kafka)
        self.deliveries = Deliveries(core, kinds, settings)
        core.consumers_changed = self.deliveries.refresh_after
        if leader is None and (core.log.last or links is not None):
            # Entries after this one, in another copy of the log, aren't a part of this history.
            core.begin_epoch()
        try:
            self.links = None if links is None else Links(core, links)
        except RangecastError:
            self.close()
            raise
        self.follower = None if leader is None else Follower(core, leader)
        if leader is not None:
            core.pipeline.reject(
                f"this server follows {leader.url}\n  hint: send the request there"
            )

    def start(self) -> None:
        """Start accepting requests; call it on the event loop of the listeners."""
        self.core.start()
        self.maintenance.start()
        self.scrub.start()
        if self.follower is not None:
            self.follower.start()  # its leader delivers
        else:
            self.deliveries.start()

    def stop(self) -> None:
        """Write all accepted requests, take a snapshot, and release the folder.

        Stop deliveries first, by `await deliveries.stop()`.
        """
        if self.follower is not None:
            self.follower.stop()
        self.maintenance.stop()
        self.scrub.stop()
        self.core.stop()
        if self._leader is not None:
            self._leader.close()

    def close(self) -> None:
        """Release the folder immediately."""
        self.core.close()
        if self._leader is not None:
            self._leader.close()

    def why_not_ready(self) -> str:
        """Return why events can't be accepted; empty if they can."""
        core = self.core
        if core.pipeline.has_failed:
            return "stopped"
        if core.pipeline.is_full:
            return "disk full"
        if core.log.damage:
            return f"the log is damaged at seq {min(core.log.damage)}"
        for source in core.sources.values():
            if source.is_stuck:
                return f"the source {source.name} is stuck: the same messages fail repeatedly"
        return "" if self.follower is None else self.follower.why_not_ready()
