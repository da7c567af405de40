"""Settings of a broker: delays, timeouts and limits of its links."""

from __future__ import annotations

from dataclasses import dataclass

from rangecast.errors import UsageError
from rangecast.model.validation.arguments import check_finite, check_integer


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Delays, timeouts and limits of the links of a broker; times are in the unit of `now`."""

    withdraw_delay: float = 5.0
    """Delay before unwanted interest is withdrawn: it may be wanted again."""
    batch_delay: float = 0.0
    """Delay before new interest is advertised, so that one frame has more of it. A query whether it
    has propagated (`AskPropagated`) ends the delay.
    """
    heartbeat_interval: float | None = 1.0
    """Interval of heartbeats; `None`: links lose nothing, so none are needed."""
    retry_timeout: float = 3.0
    """Time to wait for an answer before retrying."""
    is_reliable: bool = False
    """Whether no frame is lost while a link is up, as over TCP: then nothing is retransmitted until
    the link was down.
    """
    silence_timeout: float | None = None
    """Time without a frame after which a link is closed; needs heartbeats."""
    max_burst_bytes: int | None = None
    """Maximum bytes of interest sent at a time. More follows at the next `Tick`, unless the driver
    reports `Clogged`; `None`: all at once.
    """
    window: int = 10_000
    """Maximum unconfirmed events on a link."""
    window_bytes: int = 16 << 20
    """Maximum bytes of the texts of unconfirmed events."""
    max_scanned: int = 100_000
    """Maximum events of the log that are scanned for a link at a time."""
    max_events: int = 1_000
    """Maximum events of a frame."""
    max_items: int = 10_000
    """Maximum items of a frame."""
    max_advertised: int = 1_000_000
    max_advertised_bytes: int = 256 << 20
    """Maximum items advertised to a neighbour, and their bytes; beyond it, the neighbour is asked
    for all events.
    """
    max_received: int = 2_000_000
    max_received_bytes: int = 512 << 20
    """Maximum items that a neighbour may advertise, and their bytes; a frame beyond it is
    rejected."""
    max_waiting: int | None = None
    """Maximum events waiting for a link; beyond it, those with the lowest priority are dropped and
    counted.
    """
    max_held: int | None = None
    """Maximum events on disk that are held in memory for links that are down or slow; beyond it,
    the oldest are dropped there and counted. `None`: all are held until every neighbour has them.
    """
    max_hops: int = 1_000
    """Maximum links that an event passes."""
    max_origins: int = 1_000
    """Maximum brokers whose events are accepted, and brokers behind a link; a further one is
    rejected. This many fit into a frame, however long their names are.
    """
    max_questions: int = 10_000
    """Maximum pending queries about propagation, of the clients and of each neighbour."""

    def __post_init__(self) -> None:
        for name in (
            "window",
            "window_bytes",
            "max_scanned",
            "max_events",
            "max_items",
            "max_advertised",
            "max_advertised_bytes",
            "max_received",
            "max_received_bytes",
            "max_hops",
            "max_origins",
            "max_questions",
        ):
            check_integer(name, getattr(self, name))
        for name in ("max_waiting", "max_held"):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name), min_value=0)
        for name in ("withdraw_delay", "batch_delay"):
            if check_finite(name, getattr(self, name)) < 0:
                raise UsageError(f"{name} must be at least 0; given: {getattr(self, name)}")
        if self.max_burst_bytes is not None:
            check_integer("max_burst_bytes", self.max_burst_bytes)
        for name in ("heartbeat_interval", "retry_timeout", "silence_timeout"):
            value = getattr(self, name)
            if (name == "retry_timeout" or value is not None) and check_finite(name, value) <= 0:
                raise UsageError(f"{name} must be above 0; given: {value}")
