"""`specadapt routing`: what a service has learned."""
