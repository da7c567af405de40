"""Workers: processes that share the matching of an events topic, following one server's log.

Each worker reads the whole log, so it has every subscription, and is a member of a consumer group,
so it has some partitions of the events. Its matches and read positions are committed in one
transaction.
"""
