"""OpenAI's surface: request and response bodies, replies, routes, and what they say of routing."""
