"""Function tools: what a request offers, how its answer must call them, how calls are read."""
