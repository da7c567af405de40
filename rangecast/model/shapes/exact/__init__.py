"""Exact predicates: orientation on a plane and on the sphere, edges of rings."""
