"""The chunks of several answers as they arrive."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

from deployments.request.answered import Answer
from schemas import DecodeChunk


async def interleaved(
    answers: Sequence[Answer],
) -> AsyncGenerator[list[tuple[int, DecodeChunk]], None]:
    """Yield the chunks that arrive together, each with its answer's index; close the answers."""
    if len(answers) == 1:  # the usual case, without a task for every chunk
        [answer] = answers
        try:
            async for only in answer.chunks:
                yield [(0, only)]
        finally:
            await answer.close()
        return
    pending: dict[asyncio.Future[DecodeChunk | None], int] = {}

    def ask(index: int) -> None:
        pending[asyncio.ensure_future(anext(answers[index].chunks, None))] = index

    try:
        for index in range(len(answers)):
            ask(index)
        while pending:
            done, _ = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            succeeded = sorted(
                (future for future in done if future.exception() is None), key=pending.__getitem__
            )
            arrived = [(pending.pop(future), future.result()) for future in succeeded]
            chunks = [(index, chunk) for index, chunk in arrived if chunk is not None]
            if chunks:
                yield chunks
            for failed in done.difference(succeeded):
                failed.result()
            for index, _ in chunks:
                ask(index)
    finally:
        for future in pending:
            future.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        for answer in answers:
            await answer.close()
