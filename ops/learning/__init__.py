"""`specadapt bench learning`: what learning is worth while the world changes."""
