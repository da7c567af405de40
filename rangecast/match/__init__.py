"""match: which subscriptions hold an event?"""
