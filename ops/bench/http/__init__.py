"""`specadapt bench http`."""
