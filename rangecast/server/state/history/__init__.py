"""The subscriptions of a space as they stood at an earlier seq, rebuilt from the log.

`base` finds the state at which a replay begins: the start of the log, a snapshot, or the state that
is written when retention drops the part of the log before it. `histories` replays the edits of one
space from there, `versions` keeps its versions and answers with those of one seq.
"""
