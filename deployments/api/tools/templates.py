"""What a chat template can write, and conversations put so that it writes all of them.

Templates refuse or drop what their model was not trained on: a second system message, two turns of
one role, tools. What they cannot write goes where they can.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deployments.api.messages import Plain, function_call
from deployments.api.tools.fields import FunctionTool
from deployments.api.tools.formats import Format

_CALL = {"role": "assistant", "content": "", "tool_calls": [function_call("a", "Xf", {"Xk": "Xv"})]}
_RESULT = {"role": "tool", "tool_call_id": "a", "name": "Xf", "content": "Xr"}
_PARAGRAPH = "\n\n"


@dataclass(frozen=True)
class Traits:
    """Hold what a chat template can write.

    system: a first system message. systems: later ones. repeats: neighbouring turns of one role.
    tools: tools, as the variable of that name. calls: earlier calls and their results. goes_on: a
    user's turn behind a result.
    """

    system: bool
    systems: bool
    repeats: bool
    tools: bool
    calls: bool
    goes_on: bool


def traits_of(tokenizer: Any) -> Traits:
    """Return what a tokenizer's chat template writes, by trying it."""

    def writes(*messages: Plain, **variables: Any) -> bool:
        try:
            text = tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True, **variables
            )
        except Exception:  # Jinja's own, and those that templates raise
            return False
        said = [message["content"] for message in messages]
        if any("tool_calls" in message for message in messages):
            said += ["Xf", "Xv"]
        return all(one in text for one in [*said, "Xt" if variables else ""])

    def said(roles: str) -> list[Plain]:
        names = {"s": "system", "u": "user", "a": "assistant"}
        return [{"role": names[r], "content": f"X{r}{n}"} for n, r in enumerate(roles)]

    tool = {"type": "function", "function": {"name": "Xt", "description": "", "parameters": {}}}
    return Traits(
        system=writes(*said("su")),
        systems=writes(*said("ssuasu")),
        repeats=writes(*said("uuaau")),
        tools=writes(*said("u"), tools=[tool]),
        calls=writes(*said("u"), _CALL, _RESULT),
        goes_on=writes(*said("u"), _CALL, _RESULT, *said("u")),
    )


def tools_template(tokenizer: Any) -> str:
    """Return the chat template that a tokenizer uses for requests with tools; empty without one."""
    found = tokenizer.chat_template
    if isinstance(found, dict):  # transformers prefers the template of this name
        found = found.get("tool_use") or found.get("default")
    return found or ""


def fitted(
    messages: Sequence[Plain], tools: Sequence[FunctionTool], traits: Traits, form: Format
) -> list[Plain]:
    """Return a conversation as a template can write it.

    tools: those that the model is shown, and the template does not write. form: how calls are
    written in text.
    """
    fit = list(messages)
    if not traits.calls:
        fit = [_in_text(message, form) for message in fit]
    told = [_tools_text(tools, form)] if tools else []
    if told or not traits.systems or not traits.system:
        fit = _one_system(fit, told, traits)
    if not traits.goes_on or not traits.repeats:
        fit = _in_turn(fit, traits)
    return fit


def _one_system(messages: Sequence[Plain], told: list[str], traits: Traits) -> list[Plain]:
    """Return messages with what is `told` in the first system message, and with those that the
    template does not write."""
    first = 1 if traits.systems and messages[0]["role"] == "system" else 0
    systems, rest = list[str](), list[Plain]()
    for index, message in enumerate(messages):
        if message["role"] == "system" and (not traits.systems or index < first):
            systems.append(message["content"])
        else:
            rest.append(message)
    text = _PARAGRAPH.join([*systems, *told])
    if not text:
        return rest
    if traits.system:
        return [{"role": "system", "content": text}, *rest]
    if rest and rest[0]["role"] == "user":
        return [_joined({"role": "user", "content": text}, rest[0]), *rest[1:]]
    return [{"role": "user", "content": text}, *rest]


def _in_turn(messages: Sequence[Plain], traits: Traits) -> list[Plain]:
    """Return messages with neighbours joined that the template does not write side by side."""
    turns: list[Plain] = []
    for message in messages:
        role, before = message["role"], turns[-1]["role"] if turns else ""
        same = role == before and role != "tool" and not traits.repeats
        if same or (before == "tool" and role == "user" and not traits.goes_on):
            turns[-1] = _joined(turns[-1], message)
        else:
            turns.append(message)
    return turns


def _joined(first: Plain, second: Plain) -> Plain:
    """Return two messages as one of the first's role."""
    both = {**second, **first}
    for name in both.keys() & {"content", "reasoning_content"}:
        both[name] = _PARAGRAPH.join(filter(None, (first.get(name), second.get(name))))
    if "tool_calls" in both:
        both["tool_calls"] = [*first.get("tool_calls", ()), *second.get("tool_calls", ())]
    return both


def _in_text(message: Plain, form: Format) -> Plain:
    """Return a message with its calls as text, and a result as what the user says."""
    if message["role"] == "tool":
        said = f"Result of {message.get('name', 'the call')}:\n{message['content']}"
        return {"role": "user", "content": said}
    if not message.get("tool_calls"):
        return message
    calls = [call["function"] for call in message["tool_calls"]]
    texts = [form.call(call["name"], json.dumps(call["arguments"])) for call in calls]
    said = "\n".join(filter(None, [message["content"], form.answer(texts)]))
    return {name: given for name, given in message.items() if name != "tool_calls"} | {
        "content": said
    }


def _tools_text(tools: Sequence[FunctionTool], form: Format) -> str:
    """Return what a model is told of tools."""
    shown = (json.dumps(tool.for_template()["function"], ensure_ascii=False) for tool in tools)
    example = form.answer([form.call("function-name", '{"argument": "value"}')])
    return "\n".join(
        (
            "You can call these functions. Their arguments follow JSON schemas:",
            *shown,
            "\nTo call one, answer with its name and arguments in this form:",
            example,
        )
    )
