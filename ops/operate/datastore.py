"""`specadapt datastore`: an index of own texts, in which `suffix` and `adaptive` look up."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from ops.common import flags
from ops.common.boundary import InputError
from ops.common.output import emit

FIELDS = ("response", "text")
BATCH = 256
"""Texts that are tokenised together."""


def build(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="text files, and JSON Lines (*.jsonl) with a text in `response` or `text`",
        ),
    ],
    out: Annotated[
        Path,
        flags.option("--out", "folder of the index; one in it is replaced", "DIR"),
    ],
    bundle: flags.Bundle = None,
    config: flags.Config = None,
    json: flags.Json = None,
) -> None:
    """Index texts, such as documentation, code and past responses, for `engine.datastore`.

    A running service uses the new index within seconds.

    Example: `specadapt datastore build docs/*.md answers.jsonl --out datastore`
    """
    from ops.common.settings import load_config, resolve
    from workers.bundle import load_bundle
    from workers.drafting.lookup.datastore import DatastoreError, write_corpus

    family = load_bundle(resolve(load_config(config), bundle).bundle)
    tokenizer = family.backend_tokenizer()
    texts = (text for file in files for text in _texts(file))
    batches = iter(lambda: list(itertools.islice(texts, BATCH)), [])
    encoded = (
        encoding.ids
        for batch in batches
        for encoding in tokenizer.encode_batch(batch, add_special_tokens=False)
    )
    try:
        made = write_corpus(out, encoded, family.tokenizer_hash)
    except DatastoreError as error:
        raise InputError(f"datastore: {error}") from error
    size = sum(file.stat().st_size for file in out.iterdir())
    figures = {"texts": made.texts, "tokens": made.tokens, "bytes": size}
    text = f"{made.tokens:,} tokens of {made.texts:,} texts in {out}: {size / 1e6:,.1f} MB"
    emit(figures, lambda: [text], json)


def _texts(file: Path) -> Iterator[str]:
    """Yield the texts of a file. Raises ValueError naming the file, the line and the field."""
    from schemas.json_files import json_lines
    from schemas.text_files import read_text

    if file.suffix != ".jsonl":
        yield read_text(file)
        return
    for number, row in json_lines(file):
        found = [row[f] for f in FIELDS if f in row] if isinstance(row, dict) else []
        if len(found) != 1 or not isinstance(found[0], str):
            raise InputError(
                f"{file}, line {number}: expected an object with a text in `response` or `text`"
            )
        yield found[0]
