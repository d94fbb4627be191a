"""`specadapt bench simulated`: the simulation held against the service that it stands for."""
