"""`specadapt train`: drafters for a target, and the small demo."""
