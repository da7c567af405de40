"""The peers of the ranking benchmark answer what the oracle does: else the race isn't fair."""

import numpy as np
import pytest

from benchmarks.rank import missing
from benchmarks.rank_peers import PEERS
from rangecast.model.boxes import Boxes
from rangecast.rank.scan import Scan


@pytest.mark.parametrize("dimensions", [1, 3])
@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.__name__)
def test_a_peer_ranks_as_the_oracle_does(peer, dimensions):
    why = missing(peer)
    if why is not None:
        pytest.skip(why)
    if dimensions not in peer.dimensions:
        return
    rng = np.random.default_rng(dimensions)
    lo = rng.integers(0, 20, (1500, dimensions)) / 3
    hi = lo + rng.integers(0, 15, (1500, dimensions)) / 3
    points = rng.integers(0, 35, (40, dimensions)) / 3  # on the edges of boxes, most of them
    one = peer(lo, hi)
    boxes = Boxes.of(lo, hi)  # all scores equal: a row's number is its rank
    found = one.best(points, 7)
    for event, right in enumerate(Scan(boxes).rank(points, 7)):
        assert found[event].tolist() == right.rows.tolist()
    one.close()
