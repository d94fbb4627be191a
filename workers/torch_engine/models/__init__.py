"""The forward of models: attention, layers, families, heads, KV pool, and transformers adapters."""
