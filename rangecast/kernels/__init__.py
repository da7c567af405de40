"""Compiled kernels that several structures share."""
