"""notify over several attributes: interests as points in 2d dimensions, objects in d."""
