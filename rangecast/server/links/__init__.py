"""Links to other servers: `overlay.broker` forwards events to matching subscriptions there.

journal.py        the server's log in the form that its broker reads
connection.py     one connection: frames in, frames out
broker_runner.py  one run of the broker, from the state of the log until it can't continue
dialer.py         outgoing connections, with retries
manager.py        the thread that runs the broker
"""
