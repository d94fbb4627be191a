"""Simulation of a service as discrete events."""
