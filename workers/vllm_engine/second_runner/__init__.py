"""Several drafters in vLLM's second model runner (experimental)."""
