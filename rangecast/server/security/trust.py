"""Certificate authorities trusted for connections to other servers."""

from __future__ import annotations

import os
import ssl

import certifi


def trusted() -> ssl.SSLContext:
    """Return the TLS context for --follow and --link.

    If `SSL_CERT_FILE` or `SSL_CERT_DIR` is set, only those authorities are trusted: use it for a
    private authority. Otherwise those of the system and of the package certifi are.
    """
    context = ssl.create_default_context()
    if not (os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR")):
        context.load_verify_locations(certifi.where())
    return context
