"""vLLM's methods on servers that run already: requests are forwarded to vLLM's OpenAI API."""
