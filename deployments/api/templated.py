"""What a request says about the chat template."""

from typing import Any, Literal

from pydantic import Field

from deployments.api.input import Input
from deployments.api.tools.fields import Offer, Tools
from deployments.errors import invalid
from workers.chat_template import RESERVED


class Templated(Input):
    """Fields that a chat template reads.

    `reasoning_effort`, `verbosity` and `chat_template_kwargs` are its variables.
    """

    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = (
        None
    )
    verbosity: Literal["low", "medium", "high"] | None = None
    chat_template_kwargs: dict[str, Any] = Field(default={})
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False
    tools: Tools = Field(default=[])

    @property
    def offer(self) -> Offer:
        """Return the functions that the template shows and the answer may call."""
        return Offer(self.tools, self.tools)

    def template(self) -> dict[str, Any]:
        """Return the arguments with which `encode_chat` writes the messages.

        Raises ApiError for fields that contradict each other, and for a variable that is an
        argument of the template's own.
        """
        if self.continue_final_message and self.add_generation_prompt:
            why = "not possible with add_generation_prompt; set one of them"
            raise invalid("continue_final_message", why)
        reserved = sorted(RESERVED & self.chat_template_kwargs.keys())
        if reserved:
            why = "the template's own argument; leave it out"
            raise invalid(f"chat_template_kwargs.{reserved[0]}", why)
        variables: dict[str, Any] = {}
        if self.reasoning_effort is not None:
            variables["reasoning_effort"] = self.reasoning_effort
            variables["enable_thinking"] = self.reasoning_effort != "none"
        if self.verbosity is not None:
            variables["verbosity"] = self.verbosity
        continues = self.continue_final_message
        return {
            "add_generation_prompt": self.add_generation_prompt is not False and not continues,
            "continue_final_message": continues,
            "variables": variables | self.chat_template_kwargs,
        }
