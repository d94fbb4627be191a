"""Our own engine: one batched decode loop in torch for every method."""
