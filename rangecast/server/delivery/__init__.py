"""Delivery of messages to consumers.

    pipeline -> hub -> listeners: WebSocket, SSE, pulls, push (webhook, connectors)
    log -> log_reader | budget_reader | board_reader -> the same listeners, when they fall behind

`url_guard` and `resolver` decide which addresses a webhook may call.
"""
