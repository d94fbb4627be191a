"""`specadapt bench bounds`: how far speculation could go on traced answers."""
