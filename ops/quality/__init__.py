"""`specadapt bench quality`: what lossy methods give up for their speed."""
