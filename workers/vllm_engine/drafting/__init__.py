"""Drafting by the method that each request names, inside vLLM's worker processes."""
