"""Cells: the boxes of every grid cell, written down beforehand."""
