"""`specadapt loadtest`: any OpenAI server under open-loop load."""
