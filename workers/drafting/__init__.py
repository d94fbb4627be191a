"""The choice of draft tokens for any engine: look-ups, costs, expectations."""
