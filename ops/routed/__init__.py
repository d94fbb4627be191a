"""`specadapt bench routed`: what routing is worth to a client of the service."""
