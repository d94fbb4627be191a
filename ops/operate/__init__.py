"""Commands that run and operate a service."""
