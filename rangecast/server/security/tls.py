"""Check of certificates from a client's point of view."""

from __future__ import annotations

import ssl
from pathlib import Path

_NOT_YET_VALID, _EXPIRED = 9, 10


def wrong_with(server: ssl.SSLContext, certificate: Path) -> str:
    """Return why clients would refuse a certificate because of its dates; empty if they wouldn't.

    This performs a handshake in memory, with a client that trusts the certificate itself.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(certificate)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):  # there and back, twice
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as error:
                is_date = error.verify_code in (_NOT_YET_VALID, _EXPIRED)
                return error.verify_message if is_date else ""
            except ssl.SSLError:
                return ""
    return ""
