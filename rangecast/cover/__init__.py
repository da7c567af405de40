"""cover: which subscriptions are redundant, one by one?"""
