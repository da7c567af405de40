"""Ranking: find the top k subscriptions for an event.

choose -> slabs | device | papers | scan (the oracle) -> merged (parts of a set) -> result

Lists of the top k objects, kept for subscribers while objects change, are in `notify`.
"""
