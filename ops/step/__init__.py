"""`specadapt bench step` and `bench geometry`: where the time of one step goes."""
