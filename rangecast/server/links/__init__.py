"""Links to other servers: events are forwarded to matching subscriptions, by `overlay.broker`.

journal.py       the server's log, as its broker reads it
connection.py    one connection: frames in, frames out
broker_thread.py  one life of the broker, from what the log has until it can't go on
dialer.py        connections that this server makes, again and again
manager.py       the thread in which all this happens
"""
