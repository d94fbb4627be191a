"""Flags that mean the same in every command."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Dtype(StrEnum):
    """Precisions of an engine; auto picks the fastest for the target on this machine."""

    auto = "auto"
    bfloat16 = "bfloat16"
    float32 = "float32"
    q4 = "q4"
    int8 = "int8"


class Objective(StrEnum):
    """Routing objectives of a table."""

    speedup = "speedup"
    seconds = "seconds"


class Predictor(StrEnum):
    """Predictors of a prompt's acceptance."""

    clusters = "clusters"
    regression = "regression"


Config = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="configuration file in YAML, as for `specadapt serve`"
    ),
]
Bundle = Annotated[
    Path | None,
    typer.Option(
        "--bundle",
        metavar="DIR",
        help="folder of the model family  [default: the configuration's, bundles/smollm2]",
    ),
]
Methods = Annotated[
    str | None,
    typer.Option(
        "--methods", metavar="A,B", help="methods to use  [default: the configured portfolio]"
    ),
]
Prompts = Annotated[
    list[Path] | None,
    typer.Option(
        "--prompts",
        metavar="FILE",
        help="prompts as JSON Lines, - for standard input; repeatable  [default: shipped prompts]",
    ),
]
Ids = Annotated[
    Path | None,
    typer.Option(
        "--ids", metavar="FILE", help="file of prompt ids, one per line; use only these prompts"
    ),
]
ProfileIds = Annotated[
    Path | None,
    typer.Option(
        "--profile-ids",
        metavar="FILE",
        help="file of prompt ids; use only these prompts of the profile",
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit", min=1, metavar="N", help="number of prompts, equal per domain  [default: all]"
    ),
]
MaxTokens = Annotated[
    int, typer.Option("--max-tokens", min=1, max=2**20, help="maximum output tokens")
]
Temperature = Annotated[
    float,
    typer.Option(
        "--temperature", min=0.0, max=2.0, help="sampling temperature; 0 decodes greedily"
    ),
]
DtypeFlag = Annotated[
    Dtype | None,
    typer.Option("--dtype", help="precision of the models  [default: the configuration's, auto]"),
]
Concurrency = Annotated[
    int, typer.Option("--concurrency", min=1, max=4096, help="number of requests in flight")
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        min=1,
        max=1024,
        metavar="N",
        help="number of torch threads  [default: the configuration's]",
    ),
]
Seed = Annotated[
    int,
    typer.Option("--seed", min=0, max=2**32 - 1, help="random seed"),
]
Json = Annotated[
    Path | None,
    typer.Option(
        "--json",
        metavar="FILE",
        help="write the figures as JSON to this file; - for standard output",
    ),
]
Routing = Annotated[
    Path | None,
    typer.Option(
        "--routing", metavar="DIR", help="folder of the routing table  [default: <bundle>/routing]"
    ),
]

DEFAULT_MAX_TOKENS = 128
