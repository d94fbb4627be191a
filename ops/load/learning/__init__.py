"""`specadapt bench learning`."""
