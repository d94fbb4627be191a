"""`specadapt train`: answers of a target, and heads that learn from them."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from ops.common import flags
from ops.common.output import emit, say, table

TITLES = {
    "medusa": "Medusa heads",
    "eagle": "the head of EAGLE and EAGLE-2",
    "eagle3": "the head of EAGLE-3",
}
Config = Annotated[
    Path, typer.Argument(metavar="CONFIG", help="YAML file (docs/drafters.md lists its fields)")
]


def generate(config: Config, json: flags.Json = None) -> None:
    """Generate the target's responses to prompts, as training data for heads.

    Example: `specadapt train generate answers.yaml`
    """
    from ops.common.prompts import select
    from ops.models.train.settings import AnswerGeneration
    from schemas import SamplingParams
    from schemas.json_files import validated
    from schemas.yaml_files import read_document
    from training.generations import Asked, generate_answers
    from workers.bundle import load_bundle

    given = validated(AnswerGeneration, read_document(config), str(config))
    prompts = select(given.prompts or None, limit=given.rows, seed=given.seed)
    asked = [Asked(prompt.id, prompt.domain, prompt.messages) for prompt in prompts]
    sampling = SamplingParams(max_tokens=given.max_tokens, seed=given.seed)
    bundle = load_bundle(given.bundle)
    count = generate_answers(bundle, asked, given.out, given.engine(), sampling, say)
    emit({"answers": count, "file": str(given.out)}, lambda: [f"{count} answers"], json)


def _head_command(kind: str) -> Callable[..., None]:
    def command(config: Config, json: flags.Json = None) -> None:
        from ops.models.train.heads import train_from
        from ops.models.train.settings import HeadTraining
        from schemas.json_files import validated
        from schemas.yaml_files import read_document

        given = validated(HeadTraining, read_document(config), str(config))
        tokens = train_from(kind, given)
        title = "Tokens per target step on held-out answers, with a chain of four draft tokens"
        rows = [[domain, value] for domain, value in tokens.items()]
        emit(
            {"tokens_per_step": tokens},
            lambda: [table(title, ["domain", "tokens per step"], rows)],
            json,
        )

    command.__doc__ = f"""Train {TITLES[kind]} for a target, on the target's own answers.

    Example: `specadapt train {kind} {kind}.yaml`
    """
    return command


COMMANDS = {"generate": generate} | {kind: _head_command(kind) for kind in TITLES}
