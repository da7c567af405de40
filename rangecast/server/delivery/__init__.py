"""Delivery of messages to consumers.

    pipeline -> hub -> listeners: WebSocket, SSE, pulls, push (webhook, connectors)
    log -> log_reader | rate_limit_reader | board_reader -> listeners that fell behind

`url_guard` and `resolver` decide which addresses a webhook may call.
"""
