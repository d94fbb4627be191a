"""Training of heads on what their target generates."""
