"""Answers to batches of events: the interface of an answerer, results, and the merge of parts."""
