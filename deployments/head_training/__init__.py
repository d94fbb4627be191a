"""Heads that a service trains on its own answers: samples, rounds of training, and versions."""
