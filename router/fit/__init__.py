"""Routing tables made, changed and judged offline, from profiles and traces."""
