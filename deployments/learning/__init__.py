"""The feedback actor, its state, and the line from each ingress to it."""
