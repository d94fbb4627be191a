"""`specadapt chat`: a terminal chat that shows which method answered, why, and how fast."""

import asyncio
from typing import TYPE_CHECKING, Annotated

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
    import httpx

    from ops.common.chat_client import Reply, RequestFailedError, model_names, stream_chat
    from workers.http_clients import async_client

    async def served_model() -> str:
        async with async_client(url, timeout=None) as client:
            return (await model_names(client))[0]

    async def stream(reply: Reply) -> None:
        async with async_client(url, timeout=None) as client:
            async for text in stream_chat(client, messages, reply, **parameters):
                typer.echo(text, nl=False)

    name = model or asyncio.run(served_model())
    parameters = {"model": name, "max_tokens": max_tokens, "temperature": temperature}
    typer.echo(f"{name} at {url}. {QUIT} ends.")
    messages: list[dict[str, str]] = []
    while (said := _read_line()) != QUIT:
        if not said:
            continue
        messages.append({"role": "user", "content": said})
        reply = Reply()
        try:
            asyncio.run(stream(reply))
        except KeyboardInterrupt:
            typer.echo("")
        except (RequestFailedError, httpx.HTTPError) as error:
            typer.secho(f"{error or type(error).__name__}", fg="red", err=True)
        else:
            typer.secho(f"\n  {footer(reply)}", dim=True)
            messages.append({"role": "assistant", "content": reply.text})
            continue
        messages.pop()  # the next turn starts from before the question


def footer(reply: "Reply") -> str:
    """Method, reason, tokens/s and acceptance of one response."""
    figures = [
        reply.headers.get("x-specadapt-method", "?"),
        f"({reply.headers.get('x-specadapt-reason', '?')})",
    ]
    if reply.output_tokens and reply.seconds:
        figures.append(f"{reply.output_tokens / reply.seconds:.0f} tokens/s")
    speculative = reply.usage.get("speculative") or {}
    if drafted := speculative.get("drafted_tokens"):
        accepted = speculative.get("accepted_tokens", 0)
        figures.append(f"{accepted} of {drafted} draft tokens accepted")
    return " · ".join(figures)


def _read_line() -> str:
    try:
        return input("> ").strip()
    except (EOFError, KeyboardInterrupt):
        return QUIT
