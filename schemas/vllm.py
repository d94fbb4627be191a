"""Names of adapters, and settings of vLLM servers."""

import re
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from schemas.base import Settings


def _plain(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", name):
        raise ValueError(
            f"{name!r} is no adapter's name: use up to 64 letters, digits, dots, hyphens and _"
        )
    return name


AdapterName = Annotated[str, AfterValidator(_plain)]
"""Stands in a model's name, between colons."""


class OpenAIConfig(Settings):
    """vLLM servers to which requests of vLLM's methods are forwarded."""

    urls: tuple[str, ...] = Field(
        min_length=1,
        description="the servers, such as http://10.0.0.5:8000/v1; each has a replica",
    )
    model: str | None = Field(
        default=None, min_length=1, description="its name on the servers  [default: the bundle's]"
    )
    api_key_file: Path | None = Field(default=None, description="a file with the servers' API key")

    @model_validator(mode="after")
    def _addresses(self) -> Self:
        for url in self.urls:
            if "@" in url:
                raise ValueError("urls: leave user and password out; name a key in api_key_file")
            if not is_address(url) or not url.endswith("/v1") or {"?", "#"} & {*url}:
                raise ValueError(f"urls: expected an address like http://host:8000/v1, got {url!r}")
        if len(set(self.urls)) < len(self.urls):
            raise ValueError("urls: each server may be named once")
        return self


def is_address(text: str) -> bool:
    """Return whether a text is the address of an HTTP server."""
    try:
        parts = urlsplit(text)
        there = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # of a port that is none, and of half an IPv6 address
        return False
    return bool(there) and text.isprintable() and " " not in text
