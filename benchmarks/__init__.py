"""Side by side with what one would use instead: `make bench`, or `python -m benchmarks SUITE`."""
