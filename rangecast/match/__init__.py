"""Matching: find the subscriptions that match an event."""
