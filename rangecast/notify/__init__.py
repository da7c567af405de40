"""notify: an object changed: whose top-k list changed, in the fewest messages?"""
