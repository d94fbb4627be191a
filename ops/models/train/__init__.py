"""`specadapt train`."""
