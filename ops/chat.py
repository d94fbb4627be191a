"""`specadapt chat`: a terminal chat that shows which method answered, why, and how fast."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from ops import flags

if TYPE_CHECKING:
    import httpx

    from ops.http_client import Reply

URL = "http://127.0.0.1:8000"
QUIT = "/quit"


def chat(
    url: Annotated[str, typer.Option("--url", help="the service's address")] = URL,
    model: Annotated[
        str | None, typer.Option("--model", help="<bundle>:<method> pins a method")
    ] = None,
    max_tokens: flags.MaxTokens = flags.DEFAULT_MAX_TOKENS,
    temperature: flags.Temperature = 0.0,
) -> None:
    """Talk to the service; /quit or Ctrl-D ends.

    Example: `specadapt chat --url http://127.0.0.1:8000`
    """
    asyncio.run(_talk(url, model, max_tokens, temperature))


async def _talk(url: str, model: str | None, max_tokens: int, temperature: float) -> None:
    import httpx

    from ops.http_client import model_name

    async with httpx.AsyncClient(base_url=url, timeout=None) as client:
        parameters = {
            "model": model or await model_name(client),
            "max_tokens": max_tokens,
            "temperature": temperature,
        }
        typer.echo(f"{parameters['model']} at {url}. {QUIT} ends.")
        messages: list[dict[str, str]] = []
        while (said := await asyncio.to_thread(_read_line)) != QUIT:
            if said:
                await _answer(client, messages, said, parameters)


async def _answer(
    client: "httpx.AsyncClient", messages: list[dict[str, str]], said: str, parameters: dict
) -> None:
    import httpx

    from ops.http_client import Reply, RequestFailedError, stream_chat

    messages.append({"role": "user", "content": said})
    reply, pieces = Reply(), []
    try:
        async for text in stream_chat(client, messages, reply, **parameters):
            pieces.append(text)
            typer.echo(text, nl=False)
    except (RequestFailedError, httpx.HTTPError) as error:
        typer.secho(f"{error or type(error).__name__}", fg="red", err=True)
        messages.pop()
        return
    messages.append({"role": "assistant", "content": "".join(pieces)})
    typer.secho(f"\n  {footer(reply)}", dim=True)


def footer(reply: "Reply") -> str:
    """Method, reason, tokens/s and acceptance of one answer."""
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
    except EOFError:
        return QUIT
