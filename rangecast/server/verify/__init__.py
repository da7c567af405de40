"""Verification of delivered messages against the log, by an oracle of its own."""
