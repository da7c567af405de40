"""Matching and ranking on a GPU: boxes stay in row order, events are sorted.

    source   -> the kernels of `cuda/`, and the constants they are compiled with
    runtime  -> protocols of devices; `cupy_runtime` implements NVIDIA's, `devices` names them
    edges    -> edges of attributes, and the sort keys of events derived from them
    boxes    -> the boxes of a set in the device's memory; an edit is a write
    search   -> events in; matches, counts or the top k out; several pieces in flight
    live     -> the set at a view

The verbs have structures on top of it (`match.device`, `rank.device`). A device is never chosen
automatically: it only pays off with thousands of events at a time.
"""
