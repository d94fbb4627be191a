"""`specadapt bench quality`."""
