"""Run experiments, each of which repeats a section of a paper."""

from benchmarks.frame import main

ABOUT = {
    "merge": "paper 004, section 7: merging on the Hilbert curve",
}

if __name__ == "__main__":
    main("experiments", ABOUT)
