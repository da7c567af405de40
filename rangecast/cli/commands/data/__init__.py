"""Commands that make or convert data."""
