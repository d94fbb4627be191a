"""The HTTP part of the configuration: where the ingress listens, and who may send requests."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from schemas.base import Settings
from schemas.keys import Isolation

ToolParserName = Literal["hermes", "llama3_json", "mistral", "json"]


class GuardConfig(Settings):
    """Who may send requests, and from which web pages."""

    keys_file: Path | None = Field(
        default=None,
        description="API keys, YAML or JSON; without it every client may send requests",
    )
    cors_origins: tuple[Annotated[str, Field(pattern=r"^(\*|https?://[^/\s]+)$")], ...] = Field(
        default=(), description="origins whose pages may ask, such as https://chat.example.com"
    )
    isolation: Isolation | None = Field(
        default=None,
        description="whose prompts and past answers may speed up a request: every client's (none), "
        "its tenant's or its key's; needs keys_file  [default: tenant with keys_file, else none]",
    )

    @property
    def isolated(self) -> Isolation:
        """Return the active isolation."""
        return self.isolation or ("none" if self.keys_file is None else "tenant")

    @model_validator(mode="after")
    def _isolated(self) -> Self:
        if self.isolated != "none" and self.keys_file is None:
            raise ValueError("isolation: without keys_file no tenant is known; set keys_file")
        return self


class HttpConfig(Settings):
    """Where the ingress listens and what it accepts."""

    host: str = Field(default="127.0.0.1", description="address to listen on; 0.0.0.0: all")
    port: int = Field(default=8000, ge=0, le=65535, description="0: any that is free")
    max_body_bytes: int = Field(
        default=2_000_000, ge=1024, description="size of a request's body; larger ones get 413"
    )
    strict_fields: bool = Field(
        default=False,
        description="refuse bodies with unknown fields; otherwise these are ignored and named in "
        "the header x-specadapt-ignored",
    )
    cap_max_tokens: bool = Field(
        default=True,
        description="lower a max_tokens above what the context has left, and name it in "
        "x-specadapt-ignored; otherwise 400, except in /v1/messages",
    )
    max_answer_seconds: float | None = Field(
        default=None, gt=0.0, description="longest deadline, and that of requests without one"
    )
    guard: GuardConfig = GuardConfig()
    chat_template: Path | None = Field(
        default=None, description="Jinja file in place of the tokenizer's own template"
    )
    tool_parser: ToolParserName | None = Field(
        default=None,
        description="how the model writes tool calls  [default: what its chat template shows]",
    )
    ingress_replicas: int = Field(default=1, ge=1, description="processes that answer HTTP")
    ingress_num_cpus: float = Field(default=0.5, ge=0.0, description="like num_cpus of methods")
    ingress_max_replicas_per_node: int | None = Field(
        default=None, ge=1, le=100, description="like max_replicas_per_node of methods"
    )
    ingress_max_ongoing_requests: int = Field(
        default=256, ge=1, description="requests that an ingress handles at a time"
    )
