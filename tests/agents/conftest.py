"""Clients, and a service for them."""

from agents_service import agents_bundle, folders, page, programs, run, scripted

__all__ = ["agents_bundle", "folders", "page", "programs", "run", "scripted"]
