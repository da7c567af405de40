"""Links to other servers: events are forwarded to matching subscriptions, by `overlay.broker`.

journal.py        the server's log, as its broker reads it
connection.py     one connection: frames in, frames out
broker_runner.py  one run of the broker, from the state of the log until it can't continue
dialer.py         outgoing connections, with retries
manager.py        the thread in which all this happens
"""
