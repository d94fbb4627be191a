"""Flags that mean the same in every command."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

Dtype = Literal["auto", "bfloat16", "float32", "q4", "int8"]
"""Precisions of an engine; auto picks the fastest for the target on this machine."""


def option(flag: str, help_text: str, metavar: str | None = None, **limits: Any) -> Any:
    """Return an option; limits: `min` and `max`."""
    return typer.Option(flag, metavar=metavar, help=help_text, **limits)


Config = Annotated[
    Path | None, option("--config", "configuration file in YAML, as for `specadapt serve`", "FILE")
]
Model = Annotated[
    str | None,
    typer.Argument(
        metavar="[MODEL]",
        help="GGUF file, Hugging Face folder, name on the Hugging Face hub, or bundle  "
        "[default: the configuration's bundle]",
    ),
]
Speculator = Annotated[
    list[str] | None,
    option(
        "--speculator",
        "head or draft model in Hugging Face layout, as eagle3=FOLDER or draft=NAME; repeatable",
        "PART=MODEL",
    ),
]
Bundle = Annotated[
    Path | None,
    option(
        "--bundle",
        "folder of the model family  [default: the configuration's, bundles/smollm2]",
        "DIR",
    ),
]
Methods = Annotated[
    str | None,
    option("--methods", "methods to use  [default: the configured portfolio]", "A,B"),
]
Prompts = Annotated[
    list[Path] | None,
    option(
        "--prompts",
        "prompts as JSON Lines, - for standard input; repeatable  [default: shipped prompts]",
        "FILE",
    ),
]
Ids = Annotated[
    Path | None,
    option("--ids", "file of prompt ids, one per line; use only these prompts", "FILE"),
]
ProfileIds = Annotated[
    Path | None,
    option("--profile-ids", "file of prompt ids; use only these prompts of the profile", "FILE"),
]
Limit = Annotated[
    int | None, option("--limit", "number of prompts, equal per domain  [default: all]", "N", min=1)
]
MaxTokens = Annotated[int, option("--max-tokens", "maximum output tokens", min=1, max=2**20)]
Temperature = Annotated[
    float, option("--temperature", "sampling temperature; 0 decodes greedily", min=0.0, max=2.0)
]
DtypeFlag = Annotated[
    Dtype | None, option("--dtype", "precision of the models  [default: the configuration's, auto]")
]
Concurrency = Annotated[
    int, option("--concurrency", "number of requests in flight", min=1, max=4096)
]
Threads = Annotated[
    int | None,
    option(
        "--threads", "number of torch threads  [default: the configuration's]", "N", min=1, max=1024
    ),
]
Seed = Annotated[int, option("--seed", "random seed", min=0, max=2**32 - 1)]
Json = Annotated[
    Path | None,
    option("--json", "write the figures as JSON to this file; - for standard output", "FILE"),
]
Routing = Annotated[
    Path | None,
    option("--routing", "folder of the routing table  [default: <bundle>/routing]", "DIR"),
]

Url = Annotated[str, option("--url", "address of the service")]

DEFAULT_MAX_TOKENS = 128
DEFAULT_URL = "http://127.0.0.1:8000"
