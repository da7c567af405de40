"""The authorities whose certificates a server trusts when it connects to another server."""

from __future__ import annotations

import os
import ssl

import certifi


def trusted() -> ssl.SSLContext:
    """Return a TLS context for --follow and --link.

    It trusts the authorities of `SSL_CERT_FILE` or `SSL_CERT_DIR` alone, if one is set: that is how
    to use a private authority. Else those of the system and those of the package certifi.
    """
    context = ssl.create_default_context()
    if not (os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR")):
        context.load_verify_locations(certifi.where())
    return context
