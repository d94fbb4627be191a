"""APIs other than OpenAI's chat that translate to it: Responses and Messages."""
