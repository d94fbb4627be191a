"""What is drafted, decided by any engine: look-ups, costs, and the choice among drafters."""
