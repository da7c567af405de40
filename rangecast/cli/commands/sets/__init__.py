"""Commands over whole sets of subscriptions."""
