"""`specadapt bench soak`."""
