"""How a broker talks to its neighbours."""

from __future__ import annotations

from dataclasses import dataclass

from rangecast.errors import UsageError
from rangecast.model.validation.arguments import finite, whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a broker talks to its neighbours; times are in the unit of `now`."""

    linger: float = 5.0
    """How long something that isn't wanted any more stays told, in case it is wanted again."""
    gather: float = 0.0
    """How long something new may wait to be told, so that more is told at once; a question whether
    it is known everywhere (`AskSettled`) ends the wait."""
    beat: float | None = 1.0
    """From one Beat to the next; `None`: links lose nothing, so none is needed."""
    patience: float = 3.0
    """How long to wait for an answer before asking or sending again."""
    is_reliable: bool = False
    """Whether no frame is lost while a link is up, as over TCP: nothing is sent again then, before
    the link was down."""
    silence_timeout: float | None = None
    """After this time without a frame of the neighbour, a link is closed; with beats only."""
    max_burst_bytes: int | None = None
    """Bytes of interest that are sent at a time. More comes at the next `Tick`, unless the driver
    says `Clogged`; `None`: all at once."""
    window: int = 10_000
    """Events on a link that aren't confirmed yet."""
    window_bytes: int = 16 << 20
    """Bytes of their texts."""
    most_scanned: int = 100_000
    """Events of the log that are looked at for a link at a time."""
    most_events: int = 1_000
    """Events of a frame."""
    most_items: int = 10_000
    """Items of a frame."""
    most_told: int = 1_000_000
    max_told_bytes: int = 256 << 20
    """Items that a neighbour is told, and their bytes; if there are more, it is told to send
    everything."""
    max_heard: int = 2_000_000
    max_heard_bytes: int = 512 << 20
    """Items that a neighbour may want, and their bytes; a frame that goes beyond is refused."""
    most_waiting: int | None = None
    """Events that may wait for a link; the lowest of more are shed, and counted."""
    most_held: int | None = None
    """Events on disk that are held in memory for links that are down or slow; if there are more,
    the oldest are shed there, and counted. `None`: all are held until every neighbour has them."""
    most_hops: int = 1_000
    """Links that an event may go over."""
    most_origins: int = 1_000
    """Brokers whose events are taken, and brokers behind a link; one more is refused. As many fit
    into a frame, however long their names are."""
    most_questions: int = 10_000
    """Questions for settling that may wait, of the clients and of each neighbour."""

    def __post_init__(self) -> None:
        for name in (
            "window",
            "window_bytes",
            "most_scanned",
            "most_events",
            "most_items",
            "most_told",
            "max_told_bytes",
            "max_heard",
            "max_heard_bytes",
            "most_hops",
            "most_origins",
            "most_questions",
        ):
            whole(name, getattr(self, name))
        for name in ("most_waiting", "most_held"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name), least=0)
        for name in ("linger", "gather"):
            if finite(name, getattr(self, name)) < 0:
                raise UsageError(f"{name} is at least 0; given: {getattr(self, name)}")
        if self.max_burst_bytes is not None:
            whole("max_burst_bytes", self.max_burst_bytes)
        for name in ("beat", "patience", "silence_timeout"):
            value = getattr(self, name)
            if (name == "patience" or value is not None) and finite(name, value) <= 0:
                raise UsageError(f"{name} is above 0; given: {value}")
