"""Workers: processes that share the matching of a topic of events, by the log of one server.

Each reads the log whole, so it has every subscription, and is a member of a consumer group, so it
has some partitions of the events. What it finds, and how far it has read, are one transaction.
"""
