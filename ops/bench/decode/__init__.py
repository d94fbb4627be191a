"""`specadapt bench decode`."""
