"""Reading of large texts: threads in turn by caller, tokenizers for them, limits of tokens."""
