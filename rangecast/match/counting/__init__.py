"""Counts of the subscriptions that match an event, without listing them."""
