"""Verification of delivered messages against the log, by independent oracles."""
