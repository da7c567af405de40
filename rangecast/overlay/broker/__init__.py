"""The broker of a network by interest: a state machine without I/O.

ports.Input -> Broker.handle -> ports.Output; `links`, `interest` and `events` are its parts.
"""
