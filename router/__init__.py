"""Which method for which prompt, and learning. Knows neither Ray nor torch."""
