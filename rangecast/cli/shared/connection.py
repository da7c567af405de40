"""Options of commands that call a server, and the connection made from them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rangecast.client import Client

Server = Annotated[
    str, typer.Option("--server", envvar="RANGECAST_SERVER", help="The address of the server.")
]
Secret = Annotated[
    str | None,
    typer.Option("--token", envvar="RANGECAST_TOKEN", help="A token, if the server requires one."),
]
SpaceName = Annotated[
    str | None,
    typer.Option("--space", help="The name of the space; not needed if there is only one."),
]
CaFile = Annotated[
    Path | None,
    typer.Option(
        "--ca-file", help="TLS: trust the authorities of this PEM file (default: SSL_CERT_FILE)."
    ),
]
ClientCert = Annotated[
    Path | None,
    typer.Option("--client-cert", help="TLS: a PEM file with the client certificate."),
]
ClientKey = Annotated[
    Path | None,
    typer.Option(
        "--client-key",
        help="TLS: the private key of the client certificate, if it is in another file.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@dataclass(frozen=True)
class Connection:
    """Connection options of a server."""

    server: Server = "http://127.0.0.1:8080"
    token: Secret = None
    ca_file: CaFile = None
    client_cert: ClientCert = None
    client_key: ClientKey = None

    def client(self, space: str | None = None) -> Client:
        """Return a client, optionally for a space."""
        from rangecast.errors import UsageError
        from rangecast.server import need_server

        need_server()
        from rangecast.client import Client

        if self.client_key is not None and self.client_cert is None:
            raise UsageError("--client-key requires --client-cert\n  hint: give both")
        cert: Any = self.client_cert
        if self.client_cert is not None and self.client_key is not None:
            cert = self.client_cert, self.client_key
        return Client(
            self.server, space=space, token=self.token, verify=self.ca_file or True, cert=cert
        )

    def client_in(self, space: str | None) -> Client:
        """Return a client for a space; the only one of the server if none is named."""
        from rangecast.errors import UsageError

        if space is not None:
            return self.client(space)
        with self.client() as client:
            names = client.spaces()
        if len(names) != 1:
            choices = f"has {', '.join(names)}" if names else "has none"
            raise UsageError(f"which space? {self.server} {choices}\n  hint: give --space NAME")
        return self.client(names[0])
