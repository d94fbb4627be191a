"""The chunks of several answers in the order in which they arrive."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

from deployments.request.answered import Answer
from schemas import DecodeChunk


async def interleaved(
    answers: Sequence[Answer],
) -> AsyncGenerator[tuple[int, DecodeChunk], None]:
    """Yield the chunks of all answers as they arrive, with the answer's index; close the
    answers."""
    if len(answers) == 1:  # the usual case, without a task for every chunk
        [answer] = answers
        try:
            async for only in answer.chunks:
                yield 0, only
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
            for future in sorted(done, key=pending.__getitem__):
                chunk = future.result()
                index = pending.pop(future)
                if chunk is not None:
                    yield index, chunk
                    ask(index)
    finally:
        for future in pending:
            future.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        for answer in answers:
            await answer.close()
