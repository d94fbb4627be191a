"""`specadapt bench http`: the served system at the client, alone or beside another server."""
