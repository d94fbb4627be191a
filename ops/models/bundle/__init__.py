"""`specadapt bundle`."""
