"""The log: every accepted unit, in one order.

`base` is the interface; `sqlite` (segments in files) and `kafka` (a topic) implement it.
`durability` is the fsync policy of the files, `acknowledged` records how far the log was
acknowledged, and `scrub` verifies old segments after a start.
"""
