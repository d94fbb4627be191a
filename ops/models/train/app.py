"""`specadapt train`: tokenizer, target and drafters, for the demo family or a user's own."""

import typer

from ops.harness.boundary import show_help
from ops.models.train.draft import draft
from ops.models.train.generate import generate
from ops.models.train.heads import POSITIONS, train_head_command
from ops.models.train.prompts import prompts
from ops.models.train.target import target
from ops.models.train.tokenizer import tokenizer

train = typer.Typer(
    help="Train a tokenizer, a target, and drafters for it.",
    callback=show_help,
    invoke_without_command=True,
)

train.command("prompts")(prompts)
for kind in POSITIONS:
    train.command(kind)(train_head_command(kind))
for noun in (tokenizer, target, generate, draft):
    train.command()(noun)
