"""`specadapt bench routed`."""
