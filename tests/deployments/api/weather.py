"""A tool of three APIs: the weather in a city."""

CITIES = ["Paris", "Oslo"]
SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": CITIES}},
    "required": ["city"],
    "additionalProperties": False,
}
NAMED = {"name": "get_weather", "description": "The weather in a city"}
FUNCTION = NAMED | {"parameters": SCHEMA, "strict": True}
CHAT_TOOL = {"type": "function", "function": FUNCTION}
RESPONSES_TOOL = {"type": "function"} | FUNCTION
MESSAGES_TOOL = NAMED | {"input_schema": SCHEMA}
