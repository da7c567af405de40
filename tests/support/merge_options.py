"""Data for tests of the variants of merging."""

from __future__ import annotations

from rangecast.workloads import generate


def zipf_and_uniform(n, m, d=3, **options):
    made = generate("equal-boxes", subscriptions=n, events=m, attributes=d, **options)
    return made.space, made.boxes, made.points
