"""Decoding on one replica: how tokens are made. Knows neither Ray nor routing."""
