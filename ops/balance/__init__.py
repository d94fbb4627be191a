"""`specadapt bench balance`: how evenly replicas are loaded."""
