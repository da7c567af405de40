"""The state of a server, a pure function of its log.

edits -> admission -> log -> registry, space_index, board_index -> snapshots
snapshot + log -> replay -> the same state
"""
