"""TLS of a client: trusted and presented certificates, and readable errors."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from rangecast.errors import UsageError

Verify = bool | str | Path | ssl.SSLContext
"""`True`: public authorities, or those of SSL_CERT_FILE and SSL_CERT_DIR. A path: the authorities
in this PEM file, or in a folder of them. `False`: accept any certificate.
"""
Cert = str | Path | tuple[str | Path, str | Path]
"""A PEM file with a certificate and its key, or one for each."""
_PROBE = 3.0
"""Timeout in seconds for probing whether an unresponsive port speaks TLS."""
_EXPIRED, _NOT_YET = 10, 9
_OTHER_NAME = (62, 64)
"""OpenSSL error codes, X509_V_ERR_*."""
_TRUST = (
    "pass the certificate of its authority: Client(verify='ca.pem'), --ca-file ca.pem, or "
    "SSL_CERT_FILE=ca.pem"
)


def context(url: str, verify: Verify, cert: Cert | None) -> ssl.SSLContext | bool:
    """Return the TLS context for connections to a URL; `True` for plain HTTP."""
    if not url.startswith("https://"):
        return True
    made = verify if isinstance(verify, ssl.SSLContext) else _trusting(verify)
    if cert is not None:
        both = (cert, None) if isinstance(cert, str | Path) else cert
        try:
            made.load_cert_chain(*both)
        except (OSError, ssl.SSLError) as error:
            files = " and ".join(
                str(certificate) for certificate in both if certificate is not None
            )
            raise UsageError(
                f"the client certificate {files} can't be used: {error}\n"
                "  hint: give PEM files: a certificate, and its private key"
            ) from None
    return made


def _trusting(verify: bool | str | Path) -> ssl.SSLContext:
    if isinstance(verify, bool):
        trusted = os.environ.get("SSL_CERT_FILE") if verify else None
        file, by = trusted, "SSL_CERT_FILE"
    else:
        file, by = str(verify), "verify"
    try:
        if isinstance(verify, bool):
            return httpx.create_ssl_context(verify)
        if Path(verify).is_dir():
            return ssl.create_default_context(capath=str(verify))
        return ssl.create_default_context(cafile=str(verify))
    except (OSError, ssl.SSLError) as error:
        raise UsageError(
            f"{by}: the certificates in {file} can't be used: {error}\n"
            "  hint: give a PEM file with the certificate of an authority, or a folder of them"
        ) from None


def is_failure(error: BaseException) -> bool:
    """Return whether a request failed because of TLS, so that a retry is pointless."""
    return any(isinstance(cause, ssl.SSLError) for cause in _causes(error))


def failure(url: str, error: BaseException) -> str | None:
    """Describe a TLS failure of a request, with a hint; `None` if TLS wasn't the cause."""
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return _unverified(cause)
        if isinstance(cause, ssl.SSLError):
            return _failed(cause)
    if _speaks_tls(url, error):
        return "the server expects TLS on this port\n  hint: use https:// instead of http://"
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _unverified(error: ssl.SSLCertVerificationError) -> str:
    code, why = error.verify_code, error.verify_message
    if code == _EXPIRED:
        return "TLS: the server's certificate has expired\n  hint: renew it"
    if code == _NOT_YET:
        return (
            "TLS: the server's certificate isn't valid yet\n"
            "  hint: check the clocks of both machines"
        )
    if code in _OTHER_NAME:
        return (
            f"TLS: the server's certificate doesn't cover this host: {why}\n"
            "  hint: use a host name that the certificate lists"
        )
    return f"TLS: the server's certificate isn't trusted: {why}\n  hint: {_TRUST}"


def _failed(error: ssl.SSLError) -> str:
    reason = (error.reason or "").upper()
    if "WRONG_VERSION_NUMBER" in reason or "HTTP_REQUEST" in reason or "RECORD_LAYER" in reason:
        return (
            "TLS: the server doesn't use TLS on this port\n"
            "  hint: use http:// instead of https://, or its TLS port"
        )
    if "CERTIFICATE_REQUIRED" in reason or "HANDSHAKE_FAILURE" in reason:
        return (
            f"TLS: the server requires a client certificate ({reason.lower().replace('_', ' ')})\n"
            "  hint: pass one: Client(cert=('client.pem', 'client.key')), or --client-cert and "
            "--client-key"
        )
    if "ALERT" in reason:
        return (
            f"TLS: the server aborted the handshake ({reason.lower().replace('_', ' ')})\n"
            "  hint: check that the server trusts the client certificate"
        )
    return f"TLS: {error}\n  hint: {_TRUST}"


def _speaks_tls(url: str, error: BaseException) -> bool:
    """Return whether a port that closed a plain HTTP connection speaks TLS."""
    if not url.startswith("http://") or not isinstance(
        error, httpx.RemoteProtocolError | httpx.ReadError
    ):
        return False
    parts = urlsplit(url)
    asking = ssl.create_default_context()
    asking.check_hostname, asking.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection((parts.hostname or "", parts.port or 80), _PROBE) as plain,
            asking.wrap_socket(plain, server_hostname=parts.hostname),
        ):
            return True
    except (OSError, ValueError):
        return False
