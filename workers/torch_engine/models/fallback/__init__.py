"""Models that our own forward does not cover, through the forward that transformers has."""
