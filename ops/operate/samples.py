"""`specadapt drafters samples`: the answers that a service keeps for training."""

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ops.common import flags
from ops.common.boundary import InputError
from ops.common.output import emit, table

if TYPE_CHECKING:
    from schemas import FeedbackConfig
    from workers.bundle import Bundle


def samples(
    erase: Annotated[
        str | None,
        typer.Option(
            "--erase",
            metavar="OWNER",
            help="delete the answers of an owner, as the list names it: 'tenant NAME' or 'key "
            "NAME'; '' without API keys",
        ),
    ] = None,
    config: flags.Config = None,
    json: flags.Json = None,
) -> None:
    """Count the answers that are kept for training by owner, or delete an owner's.

    A running service deletes its own copy of what is erased within ten minutes.

    Example: `specadapt drafters samples --erase "tenant acme" --config my.yaml`
    """
    from deployments.drafters.samples import Samples

    if erase and not re.fullmatch(r"(tenant|key) .+", erase):
        raise InputError(f"--erase: give 'tenant {erase}' or 'key {erase}'")
    feedback, bundle = place_of(config)
    kept = Samples(feedback, bundle.name)
    found = kept.stored()
    answers = Counter(sample.owner for sample in found)
    tokens = Counter[str]()
    for sample in found:
        tokens[sample.owner] += sample.tokens
    if erase is not None:
        kept.erase(erase)
        erased = {"erased": erase, "answers": answers[erase], "tokens": tokens[erase]}
        text = f"{answers[erase]} answers of {erase or 'requests without keys'} are erased"
        emit(erased, lambda: [text], json)
        return
    rows = [[owner, answers[owner], tokens[owner]] for owner in sorted(answers)]
    columns = ["owner", "answers", "tokens"]
    figures = [dict(zip(columns, row, strict=True)) for row in rows]
    emit(figures, lambda: [table(f"Answers in {kept.uri}", columns, rows)], json)


def place_of(config: Path | None) -> "tuple[FeedbackConfig, Bundle]":
    """Return where a service keeps what it has learned, and its bundle."""
    from deployments.configuration import resolved
    from ops.common.settings import served_config
    from workers.bundle import load_bundle

    settings = resolved(served_config(config))
    return settings.feedback, load_bundle(settings.bundle)
