"""`specadapt trace`: what every method would draft and keep at every position of plain answers."""
