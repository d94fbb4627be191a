"""`specadapt loadtest`."""
