"""`specadapt bench scaling`."""
