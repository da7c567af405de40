"""Sharded sets: each worker holds only some of the subscriptions.

memory (how many shards) -> placing (which rows go where) -> build -> sharded_set (answers)
"""
