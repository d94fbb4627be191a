"""The flags that mean the same in every command."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Dtype(StrEnum):
    """The precisions an engine runs in; auto is the sooner of the two floating-point ones here."""

    auto = "auto"
    bfloat16 = "bfloat16"
    float32 = "float32"
    int8 = "int8"


class Objective(StrEnum):
    """What a routing table makes small."""

    speedup = "speedup"
    seconds = "seconds"


class Predictor(StrEnum):
    """What foretells a prompt's acceptance."""

    clusters = "clusters"
    regression = "regression"


class Clustering(StrEnum):
    """What makes a routing table's clusters."""

    kmeans = "kmeans"
    minibatch = "minibatch"
    gaussian = "gaussian"
    hdbscan = "hdbscan"


Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="YAML configuration, as `specadapt serve`'s"),
]
Bundle = Annotated[
    Path | None,
    typer.Option(
        "--bundle",
        metavar="DIR",
        help="model family  [default: the configuration's, bundles/smollm2]",
    ),
]
SmallBundle = Annotated[Path, typer.Option("--bundle", metavar="DIR", help="model family")]
Methods = Annotated[
    str | None,
    typer.Option("--methods", metavar="A,B", help="[default: the configured portfolio]"),
]
Prompts = Annotated[
    list[Path] | None,
    typer.Option(
        "--prompts", metavar="FILE", help="JSON Lines, may be repeated  [default: shipped prompts]"
    ),
]
Ids = Annotated[
    Path | None,
    typer.Option("--ids", metavar="FILE", help="only the prompts with these ids, one a line"),
]
ProfileIds = Annotated[
    Path | None,
    typer.Option("--profile-ids", metavar="FILE", help="only the profile's prompts with these ids"),
]
Limit = Annotated[
    int | None,
    typer.Option("--limit", min=1, metavar="N", help="prompts, equal per domain  [default: all]"),
]
MaxTokens = Annotated[
    int, typer.Option("--max-tokens", min=1, max=2**20, help="output tokens at most")
]
Temperature = Annotated[
    float, typer.Option("--temperature", min=0.0, max=2.0, help="0 decodes greedily")
]
DtypeFlag = Annotated[
    Dtype | None, typer.Option("--dtype", help="[default: the configuration's, auto]")
]
Concurrency = Annotated[
    int, typer.Option("--concurrency", min=1, max=4096, help="requests in flight")
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        min=1,
        max=1024,
        metavar="N",
        help="torch threads  [default: configuration's]",
    ),
]
Seed = Annotated[
    int,
    typer.Option("--seed", min=0, max=2**32 - 1, help="orders and samples repeat under one seed"),
]
Json = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="write the figures as JSON; - is standard output"),
]
Routing = Annotated[
    Path | None,
    typer.Option("--routing", metavar="DIR", help="routing table  [default: <bundle>/routing]"),
]
Recording = Annotated[Path, typer.Option("--profile", metavar="DIR", help="answers to replay")]
RecordedMethods = Annotated[
    str | None,
    typer.Option("--methods", metavar="A,B", help="[default: all that profile and table have]"),
]
Rate = Annotated[
    float, typer.Option("--rate", min=1e-3, metavar="R", help="requests a second, mean")
]
Arrivals = Annotated[
    Path | None,
    typer.Option(
        "--trace",
        metavar="FILE",
        help="arrivals of a recorded trace, stretched to the rate  [default: Poisson]",
    ),
]
TtftSlo = Annotated[float | None, typer.Option("--ttft-slo", min=0.0, metavar="S", help="seconds")]
TpotSlo = Annotated[
    float | None, typer.Option("--tpot-slo", min=0.0, metavar="S", help="seconds per token")
]
AcceptanceTraces = Annotated[
    Path | None,
    typer.Option(
        "--traces",
        metavar="DIR",
        help="prompts and acceptance of `specadapt trace`  [default: the routing table's clusters]",
    ),
]
StepCosts = Annotated[
    str,
    typer.Option(
        "--costs",
        metavar="MODEL",
        help="measured: the routing table's; h100-llama-8b: published of Llama-3.1-8B on an H100",
    ),
]
ServiceOverhead = Annotated[
    Path | None,
    typer.Option(
        "--overhead",
        metavar="FILE",
        help="what the service adds, of `specadapt calibrate`  [default: nothing]",
    ),
]
Replicas = Annotated[
    int | None,
    typer.Option(
        "--replicas", min=1, metavar="N", help="in all  [default: the configuration's least]"
    ),
]
StartSeconds = Annotated[
    float,
    typer.Option(
        "--start-seconds", min=0.0, metavar="S", help="from wanting a replica until it serves"
    ),
]
LatencySlo = Annotated[
    float | None,
    typer.Option("--latency-slo", min=0.0, metavar="S", help="seconds of a whole answer"),
]

DEFAULT_MAX_TOKENS = 128
# What breaks and outlasts services is about processes, so that the small family does.
SMALL_BUNDLE = Path("bundles/demo")
