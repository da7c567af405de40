"""Links to other servers: an event that somebody wants there goes there, by `overlay.broker`.

journal.py   the server's log, as its broker reads it
wire.py      one connection: frames in, frames out
driver.py    one life of the broker, from what the log has until it can't go on
dial.py      connections that this server makes, again and again
links.py     the thread in which all this happens
"""
