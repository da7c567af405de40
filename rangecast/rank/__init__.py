"""rank: which k subscriptions are best for an event?"""
