"""`specadapt bench chaos`: what clients notice while parts of the service fail."""
