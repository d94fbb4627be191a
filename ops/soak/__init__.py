"""`specadapt bench soak`: whether the service holds its memory and handles over hours of load."""
