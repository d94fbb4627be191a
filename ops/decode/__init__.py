"""`specadapt bench decode`: methods side by side with Hugging Face."""
