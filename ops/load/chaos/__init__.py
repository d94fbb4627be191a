"""`specadapt bench chaos`."""
