"""Predicates with the exact answer: signs on a plane and on the sphere, edges of rings."""
