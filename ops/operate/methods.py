"""`specadapt methods` and `generate`: what there is to decode with, and one response by it."""

import asyncio
import sys
from typing import Annotated

from ops.common import flags
from ops.common.boundary import STANDARD_OUTPUT
from ops.common.output import emit, quiet_transformers, table

PARTS = ("engine", "drafter", "tree", "stop", "verifier")
FIELDS = ("name", *PARTS, "lossless", "source")


def methods(json: flags.Json = None) -> None:
    """List the decoding methods and their parts.

    Example: `specadapt methods --json -`
    """
    from workers.methods import METHODS

    figures = [spec.model_dump(mode="json", include=set(FIELDS)) for spec in METHODS.values()]
    rows = [
        [row["name"], " · ".join(row[part] for part in PARTS), row["lossless"], row["source"]]
        for row in figures
    ]
    columns = ["name", " · ".join(PARTS), "lossless", "source"]
    emit(figures, lambda: [table("Methods", columns, rows)], json)


def generate(  # noqa: PLR0913 - its parameters are flags
    method: Annotated[
        str, flags.option("--method", "decoding method; `specadapt methods` lists them")
    ],
    prompt: Annotated[str, flags.option("--prompt", "the user's message")],
    bundle: flags.Bundle = None,
    config: flags.Config = None,
    max_tokens: flags.MaxTokens = flags.DEFAULT_MAX_TOKENS,
    temperature: flags.Temperature = 0.0,
    dtype: flags.DtypeFlag = None,
    threads: flags.Threads = None,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Decode one prompt, stream the response, and print its statistics.

    Example: `specadapt generate --method draft_verify --prompt "What is 12 + 30?"`
    """
    from ops.common.decoding import answer_to, engines_of, request_of
    from ops.common.prompts import parse
    from ops.common.settings import load_config, resolve
    from schemas import DecodeChunk, SamplingParams
    from workers.bundle import load_bundle
    from workers.chat_template import encode_chat

    setup = resolve(load_config(config), bundle, method, dtype, threads)
    quiet_transformers()
    family = load_bundle(setup.bundle)
    messages = parse({"prompt": prompt}).messages
    token_ids = encode_chat(family.tokenizer(), messages, add_generation_prompt=True)
    sampling = SamplingParams(temperature=temperature, seed=seed, max_tokens=max_tokens)

    def show(chunk: DecodeChunk) -> None:
        if json != STANDARD_OUTPUT:
            sys.stdout.write(chunk.text)
            sys.stdout.flush()

    request = request_of("generate", method, token_ids, sampling)
    with engines_of(setup, family, "generate") as engines:
        answer = asyncio.run(answer_to(engines, request, show))
    stats = answer.stats.model_dump(mode="json")
    figures = {"text": answer.text, "stats": stats}
    rows = [[name, str(value)] for name, value in stats.items()]
    emit(figures, lambda: ["", table(method, ["statistic", "value"], rows)], json)
