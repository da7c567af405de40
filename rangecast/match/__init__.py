"""match: which subscriptions match an event?"""
