"""`rangecast serve`: a durable server."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from rangecast.cli.shared.options import Device

OnFailedRecord = Literal["retry", "skip"]
"""Handling of a source's message that fails repeatedly."""


Durability = Literal["fsync", "interval", "none"]
"""Keys of `server.log.durability.SYNCHRONOUS`."""


Demo = Literal["market", "fleet"]
"""Examples that a server can publish to itself."""


class ServeCommand(TyperCommand):
    """The command `serve`, whose option --demo may be given without a name."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Parse the arguments."""
        return super().parse_args(ctx, with_name(args))


def with_name(arguments: list[str]) -> list[str]:
    """Return the arguments with a name added to --demo."""
    if "--demo" not in arguments:
        return arguments
    after = arguments.index("--demo") + 1
    if after < len(arguments) and not arguments[after].startswith("-"):
        return arguments
    return [*arguments[:after], "market", *arguments[after:]]


LogFormat = Literal["text", "json"]
"""Format of the lines on stderr."""


LogFormatOption = Annotated[
    LogFormat,
    typer.Option("--log-format", help="Format of log lines on stderr: text, or JSON objects."),
]


LogLevel = Literal["warning", "info"]
"""Level of the lines on stderr."""


def serve(
    space: Annotated[
        list[Path] | None,
        typer.Option("--space", help="A space: a TOML file, whose stem is the name of the space."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", help="The folder for the log and snapshots.")
    ] = None,
    log: Annotated[
        str | None,
        typer.Option(
            "--log", help="Keep the log on Kafka instead of in --data: kafka://HOST:PORT/PREFIX."
        ),
    ] = None,
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="The port; 0: any free port.")
    ] = 8080,
    demo: Annotated[
        Demo | None,
        typer.Option(
            "--demo",
            help="Run an example: saved searches and a stream of quotes (market, the default), "
            "or geofences and moving vehicles (fleet).",
        ),
    ] = None,
    durability: Annotated[
        Durability,
        typer.Option(
            "--durability",
            help="Answer after a sync to disk (fsync), up to 50 ms before one (interval), "
            "or without one (none).",
        ),
    ] = "fsync",
    retention_days: Annotated[
        float,
        typer.Option(
            "--retention-days", min=0, help="Delete events of the log after this many days."
        ),
    ] = 7.0,
    retention_gb: Annotated[
        float, typer.Option("--retention-gb", min=0, help="Maximum size of the log in GB.")
    ] = 10.0,
    certificate: Annotated[
        Path | None, typer.Option("--tls-cert", help="TLS: a PEM file with the certificate chain.")
    ] = None,
    key: Annotated[
        Path | None, typer.Option("--tls-key", help="TLS: a PEM file with the private key.")
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option("--insecure", help="Allow non-loopback addresses without TLS or tokens."),
    ] = False,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allowed-host",
            help="Additional host name that clients without tokens may use.",
        ),
    ] = None,
    follow: Annotated[
        str | None,
        typer.Option("--follow", help="Run as a read-only replica of this server."),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option("--token", envvar="RANGECAST_TOKEN", help="A token for --follow or --link."),
    ] = None,
    broker: Annotated[
        str | None,
        typer.Option(
            "--server-name", help="The name of this server in the network of linked servers."
        ),
    ] = None,
    link: Annotated[
        list[str] | None,
        typer.Option("--link", help="A server to link to: wss://HOST:PORT/v1/link."),
    ] = None,
    allow_private_webhooks: Annotated[
        bool,
        typer.Option(
            "--allow-private-webhooks",
            help="Allow webhooks to private networks, for deliveries that request it.",
        ),
    ] = False,
    nats: Annotated[
        str | None,
        typer.Option("--nats", help="NATS, for sources and deliveries: nats://HOST:PORT."),
    ] = None,
    nats_source: Annotated[
        list[str] | None,
        typer.Option(
            "--nats-source",
            help="SUBJECT:SPACE: publish the messages of a subject as events of a space.",
        ),
    ] = None,
    kafka: Annotated[
        str | None, typer.Option("--kafka", help="Kafka, for sources and deliveries: HOST:PORT,...")
    ] = None,
    kafka_source: Annotated[
        list[str] | None,
        typer.Option(
            "--kafka-source",
            help="TOPIC:SPACE: publish the messages of a topic as events of a space.",
        ),
    ] = None,
    on_failed_record: Annotated[
        OnFailedRecord,
        typer.Option(
            "--on-failed-record",
            help="What to do with a source's message that keeps causing an internal error.",
        ),
    ] = "retry",
    shutdown_seconds: Annotated[
        float,
        typer.Option(
            "--shutdown-seconds",
            min=0,
            help="Seconds that open connections get to finish when the server stops.",
        ),
    ] = 10.0,
    header_seconds: Annotated[
        float,
        typer.Option(
            "--header-seconds", min=0.1, help="Maximum seconds to receive the headers of a request."
        ),
    ] = 10.0,
    max_connections: Annotated[
        int,
        typer.Option(
            "--max-connections",
            min=1,
            help="Maximum number of open connections; further ones get 503.",
        ),
    ] = 10_000,
    device: Annotated[
        Device | None,
        typer.Option(
            "--device",
            help="Match bodies of 64 and more events on a GPU (cuda; requires rangecast[gpu]); "
            "default: on the CPU.",
        ),
    ] = None,
    map_tiles: Annotated[
        str | None,
        typer.Option(
            "--map-tiles",
            help="Map tiles for the web page: https://HOST/{z}/{x}/{y}.png; none by default.",
        ),
    ] = None,
    log_format: LogFormatOption = "text",
    log_level: Annotated[
        LogLevel,
        typer.Option("--log-level", help="What to log on stderr: warnings, or also each request."),
    ] = "warning",
) -> None:
    """Serve subscriptions and events over HTTP and WebSocket, durably.

    Without --data or --log everything is in memory, and lost when the server stops.

    \b
    Examples:
      rangecast serve --space market.toml --data data --port 8080
      rangecast serve --demo
      rangecast serve --demo fleet
      rangecast serve --data east --server-name east --link ws://127.0.0.1:8080/v1/link
    """
    from rangecast.errors import UsageError
    from rangecast.server import need_server

    need_server()
    from rangecast.server.memory import prepare_memory

    prepare_memory()  # before anything else is imported
    from rangecast.cli.shared.output import counted
    from rangecast.server.connectors import sources
    from rangecast.server.connectors.base import require_package
    from rangecast.server.demo import fleet, market
    from rangecast.server.http.connections import ConnectionLimits
    from rangecast.server.log_format import configure
    from rangecast.server.maintenance import Retention
    from rangecast.server.process import Server, Settings, freeze_garbage_collector, serve
    from rangecast.server.state.tracks.options import load_space

    loaded = {path.stem: load_space(path) for path in space or []}
    spaces = {name: space_ for name, (space_, _) in loaded.items()}
    if len(spaces) < len(space or []):
        raise UsageError("two space files have the same name; rename one")
    configure(log_format, log_level)
    if log is not None:
        require_package("kafka")
    skips = on_failed_record == "skip"
    read = sources(nats, nats_source or [], kafka, kafka_source or [], skips=skips)
    if read and follow is not None:
        raise UsageError("a server that follows another one can't have sources")
    settings = Settings(
        data,
        host,
        port,
        spaces,
        durability,
        Retention(int(retention_gb * 1e9), retention_days * 86_400),
        certificate,
        key,
        insecure,
        follow,
        token,
        allow_private_webhooks,
        nats,
        kafka,
        broker,
        tuple(link or ()),
        log,
        tuple(allowed_host or ()),
        shutdown_seconds,
        ConnectionLimits(header_seconds, max_connections=max_connections),
        map_tiles,
        {name: track for name, (_, track) in loaded.items() if track is not None},
        device,
    )

    def ready(url: str, server: Server) -> None:
        freeze_garbage_collector()
        registry = server.service.core.registry
        where = f"in {data}" if data is not None else "in memory only (pass --data to store it)"
        where = where if log is None else f"in {log}"
        print(
            f"Serving on {url}, {where}: {counted(len(registry.spaces), 'space')}, "
            f"{counted(sum(registry.counts.values()), 'subscription')}. Stop with Ctrl-C.",
            flush=True,
        )

    demos = {"market": market.demo, "fleet": fleet.demo}
    published = [] if demo is None else [demos[demo]()]
    gc.disable()  # loaded objects stay: there is nothing to collect until `ready`
    try:
        serve(settings, ready, [*published, *read])
    finally:
        gc.enable()
