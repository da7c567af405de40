"""Tracks: transitions of objects into and out of subscriptions.

    events -> Tracker -> reorder buffer (only with `lateness`) -> match -> machine -> Transitions
                              keys, objects, stays: columns, no Python object per key

`machine` implements the rules as one kernel, `geometry` everything beyond single events;
docs/explanation/tracks.md explains the rules.
"""
