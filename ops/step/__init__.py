"""`specadapt bench step`: where the time of one step goes."""
