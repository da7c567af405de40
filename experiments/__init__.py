"""The tables and figures of the five papers, run again: a file for each, or for those of one run.

A file says what the paper prints, which rows to measure at each size, and how to show them
(`experiment.py`). `run.py` measures the rows that are missing, `rows.py` keeps them, and `page.py`
writes them beside the paper's values. `python -m experiments` is the way in.
"""
