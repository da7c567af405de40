"""The log: every accepted unit, in one order.

`base` is the interface; `sqlite` (segments in files) and `kafka` (a topic) implement it. `lineage`
identifies a history, `acknowledged` records how far it was acknowledged, `scrub` verifies old
segments after a start, and `tools` works on the folder of a stopped server.
"""
