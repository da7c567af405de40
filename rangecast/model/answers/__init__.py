"""Answers to batches of events: the answerer interface, results, and merging of parts."""
