"""Matching and ranking on a GPU: boxes stay in the order of their rows, events are put in order.

    source   -> the kernels of `cuda/`, and what shape they are compiled in
    runtime  -> protocols of devices; `cupy_runtime` has those of NVIDIA, `devices` their names
    edges    -> edges of attributes, and how events of a batch are ordered by them
    boxes    -> the boxes of a set in the device's memory; an edit is a write
    search   -> events in, matches, counts or the best out, several pieces in flight
    live     -> the set at a view

The verbs have structures over it (`match.device`, `rank.device`). Nothing chooses a device by
itself: it takes thousands of events at a time to pay.
"""
