"""Agents' commands, and a service for them."""

from agents_service import agent, agents_bundle, npm, scripted

__all__ = ["agent", "agents_bundle", "npm", "scripted"]
