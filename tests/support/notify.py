"""Boards over a line, and what their subscribers have received."""

from rangecast.notify.board import Board

EXACT = [("dense", None), ("sparse", None), ("sparse", 3)]


def make(k, objects, interests, wanted=None, **options):
    columns = {
        "id": list(range(len(interests))),
        "position_lo": [lo for lo, _ in interests],
        "position_hi": [hi for _, hi in interests],
    }
    if wanted is not None:
        columns["k"] = wanted
    names, xs, ys = zip(*objects, strict=True) if objects else ((), (), ())
    objects = {"id": names, "position": xs, "value": ys}
    return Board(k, objects=objects, interests=columns, **options)
