"""Commands over events and subscriptions."""
