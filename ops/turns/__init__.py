"""Second turns of conversations."""
