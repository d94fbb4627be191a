"""`specadapt simulate`: the service's own router over virtual replicas."""
