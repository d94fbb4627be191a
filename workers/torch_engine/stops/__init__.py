"""Stops: how much to draft now."""
