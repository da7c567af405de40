"""Delivery of messages to consumers.

    pipeline -> Hub -> listeners: WebSocket, SSE, pulls, push (webhook, connectors)
    log -> log_reader | rate_limit_reader | board_reader -> listeners that fell behind

`listeners` keeps slow consumers from holding up the matcher: it switches them to reading the log.
`url_guard` and `resolver` decide which addresses a webhook may call.
"""
