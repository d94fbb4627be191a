"""`specadapt chat`: a terminal chat that shows which method answered, why, and how fast."""

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ops.common import flags

if TYPE_CHECKING:
    from ops.common.chat_client import Reply

QUIT = "/quit"


def chat(
    url: flags.Url = flags.DEFAULT_URL,
    model: Annotated[
        str | None, flags.option("--model", "model name; <bundle>:<method> pins a method")
    ] = None,
    max_tokens: flags.MaxTokens = flags.DEFAULT_MAX_TOKENS,
    temperature: flags.Temperature = 0.0,
) -> None:
    """Chat with a service; /quit or Ctrl-D ends the chat, Ctrl-C stops a response.

    Example: `specadapt chat --url http://127.0.0.1:8000`
    """
    parameters = {
        "model": model or asyncio.run(_served_model(url)),
        "max_tokens": max_tokens,
        "temperature": temperature,
    }
    typer.echo(f"{parameters['model']} at {url}. {QUIT} ends.")
    messages: list[dict[str, str]] = []
    while (said := _read_line()) != QUIT:
        if said:
            messages.append({"role": "user", "content": said})
            answer = _answered(url, messages, parameters)
            # Without a response the question is taken back: the next turn starts from before it.
            messages[-1:] = [messages[-1], answer] if answer else []


async def _served_model(url: str) -> str:
    from ops.common.chat_client import model_names
    from workers.http_clients import async_client

    async with async_client(url, timeout=None) as client:
        return (await model_names(client))[0]


def _answered(
    url: str, messages: list[dict[str, str]], parameters: dict[str, Any]
) -> dict[str, str] | None:
    """Stream a response to the terminal. Return None if it did not end."""
    import httpx

    from ops.common.chat_client import Reply, RequestFailedError

    reply = Reply()
    try:
        text = asyncio.run(_stream(url, messages, reply, parameters))
    except KeyboardInterrupt:
        typer.echo("")
        return None
    except (RequestFailedError, httpx.HTTPError) as error:
        typer.secho(f"{error or type(error).__name__}", fg="red", err=True)
        return None
    typer.secho(f"\n  {footer(reply)}", dim=True)
    return {"role": "assistant", "content": text}


async def _stream(
    url: str, messages: list[dict[str, str]], reply: "Reply", parameters: dict[str, Any]
) -> str:
    from ops.common.chat_client import stream_chat
    from workers.http_clients import async_client

    pieces = []
    async with async_client(url, timeout=None) as client:
        async for text in stream_chat(client, messages, reply, **parameters):
            pieces.append(text)
            typer.echo(text, nl=False)
    return "".join(pieces)


def footer(reply: "Reply") -> str:
    """Method, reason, tokens/s and acceptance of one response."""
    figures = [
        reply.headers.get("x-specadapt-method", "?"),
        f"({reply.headers.get('x-specadapt-reason', '?')})",
    ]
    if reply.output_tokens and reply.seconds:
        figures.append(f"{reply.output_tokens / reply.seconds:.0f} tokens/s")
    drafted = reply.speculative.get("drafted_tokens")
    if drafted:
        accepted = reply.speculative.get("accepted_tokens", 0)
        figures.append(f"{accepted} of {drafted} draft tokens accepted")
    return " · ".join(figures)


def _read_line() -> str:
    try:
        return input("> ").strip()
    except (EOFError, KeyboardInterrupt):
        return QUIT
