"""`specadapt bench geometry`: what the shape of a model costs, before one is trained."""
