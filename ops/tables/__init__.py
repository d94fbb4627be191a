"""Commands that make and judge routing tables."""
