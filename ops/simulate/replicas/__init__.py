"""What a simulated replica does."""
