"""Seeded generators of the workloads that the papers, the tests and the examples use."""
