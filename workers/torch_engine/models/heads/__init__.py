"""Heads: small networks that read the target's hidden states, in the layouts that vLLM loads."""
