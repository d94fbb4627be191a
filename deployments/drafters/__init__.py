"""Drafters that learn from the traffic: samples, training, and versions of heads."""
