"""Ranking: find the top k subscriptions for an event."""
