"""Validation of user input against a space: filters, sets, numbers, flags, column names."""
