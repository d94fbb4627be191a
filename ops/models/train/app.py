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
    """Generate the target's answers to prompts, as training data for heads.

    Example: `specadapt train generate answers.yaml`
    """
    from ops.common.prompts import select
    from ops.models.train.settings import AnswerGeneration, read_settings
    from training.generations import Asked, Drawing, generate_answers
    from workers.bundle import load_bundle

    given = read_settings(config, AnswerGeneration)
    prompts = select(given.prompts or None, limit=given.rows, seed=given.seed)
    asked = [Asked(prompt.id, prompt.domain, prompt.messages) for prompt in prompts]
    drawing = Drawing(max_tokens=given.max_tokens, seed=given.seed)
    bundle = load_bundle(given.bundle)
    count = generate_answers(bundle, asked, given.out, given.engine(), drawing, say)
    emit({"answers": count, "file": str(given.out)}, lambda: [f"{count} answers"], json)


def _head_command(kind: str) -> Callable[..., None]:
    def command(config: Config, json: flags.Json = None) -> None:
        from ops.models.train.heads import train_from
        from ops.models.train.settings import HeadTraining, read_settings

        figures = train_from(kind, read_settings(config, HeadTraining))
        domains = [d for d in figures.loss if d != "mean"]
        written = {
            "loss": figures.loss["mean"],
            "val_loss_by_domain": {d: figures.loss[d] for d in domains},
            "acceptance_by_domain": figures.acceptance,
            "chain_by_domain": figures.chain,
            "accuracy_by_position": figures.accuracy,
        }
        columns = ["domain", "nats a token", "same best token", "greedy chain"]
        rows = [[d, figures.loss[d], figures.acceptance[d], figures.chain[d]] for d in figures.loss]
        best = ["position", *(f"top-{k + 1}" for k in range(len(figures.accuracy[0])))]
        by_position = [[j + 1, *shares] for j, shares in enumerate(figures.accuracy)]
        emit(
            written,
            lambda: [
                table("Held-out answers", columns, rows),
                table("The target's best token among the head's", best, by_position),
            ],
            json,
        )

    command.__doc__ = f"""Train {TITLES[kind]} for a target, on the target's own answers.

    Example: `specadapt train {kind} {kind}.yaml`
    """
    return command


COMMANDS = {"generate": generate} | {kind: _head_command(kind) for kind in TITLES}
