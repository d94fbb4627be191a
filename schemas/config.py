"""One configuration for files, flags and Ray Serve's args, and the methods that it names."""

import hashlib
import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from schemas.base import Schema, Settings
from schemas.http import HttpConfig

Role = Literal["drafter", "tree", "stop", "verifier"]
PLAIN_METHODS = ("naive", "vllm_naive")
"""Plain decoding by our engine and by vLLM."""
Setting = bool | int | float | str | tuple[int, ...] | tuple[float, ...]
DEFAULT_PORTFOLIO = ("naive", "draft_verify", "ngram", "medusa", "eagle2", "eagle3")


class DatastoreConfig(Settings):
    """An index of the operator's own texts, and whose requests look up there."""

    folder: Path = Field(description="made by `specadapt datastore build`")
    scopes: tuple[Annotated[str, Field(pattern=r"^(tenant|key) .+")], ...] | None = Field(
        default=None,
        min_length=1,
        description="those who look up: `tenant NAME` or `key NAME`, as http.guard.isolation "
        "groups requests; null: every request",
    )


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


class EngineConfig(Settings):
    """One engine's resources; the same values are used to profile and to serve."""

    device: Literal["auto", "cpu", "cuda"] = Field(
        default="auto", description="auto: cuda if torch sees a GPU"
    )
    dtype: Literal["auto", "bfloat16", "float32", "q4", "int8"] = Field(
        default="auto",
        description="auto: the fastest for the target and the CPU; in vLLM bfloat16 where it is "
        "computed in hardware, else float32. q4: a quantised GGUF file's weights in 4 and 8 bits, "
        "on CPUs. int8: weights rounded to integers, on CPUs; answers differ from the model's",
    )
    threads: int = Field(default=1, ge=1, description="torch threads of one replica")
    pin_cores: bool = Field(
        default=False, description="give a replica on CPUs `threads` cores of its own"
    )
    max_batch: int = Field(default=8, ge=1, description="sequences in one step")
    kv_slots: int = Field(default=16384, ge=256, description="tokens that the KV pool holds")
    max_context: int = Field(default=2048, ge=16, description="prompt + output tokens of a request")
    max_waiting: int = Field(default=64, ge=0, description="waiting requests; more are refused")
    stall_seconds: float = Field(
        default=60.0,
        gt=0.0,
        description="longest step; then the engine counts as failed and its replica is replaced",
    )
    prefix_cache: bool = Field(
        default=True, description="compute a prefix that prompts share once; off in benchmarks"
    )
    datastore: DatastoreConfig | None = Field(
        default=None, description="texts in which methods with look-ups look up too"
    )
    lora_adapters: dict[AdapterName, Path] = Field(
        default={},
        description="LoRA adapters of the target for vLLM's methods, in PEFT's format; `model: "
        "BUNDLE:NAME` in a request chooses one",
    )
    vllm: dict[str, Any] = Field(
        default={}, description="fields of vLLM's AsyncEngineArgs for vLLM's methods, as they are"
    )
    openai: OpenAIConfig | None = Field(default=None, description="servers for vLLM's methods")

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.openai is not None and self.datastore is not None:
            raise ValueError("openai: its servers read no datastore: leave datastore or openai out")
        return self


class MethodSpec(Schema):
    """Engine + drafter + tree + stop + verifier, with each part's settings by role."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    engine: Literal["torch", "vllm"] = "torch"
    drafter: str = "none"
    tree: str = "chain"
    stop: str = "fixed"
    verifier: str = "target_choice"
    lossless: bool
    source: str = Field(description="paper section, arXiv number or project the rule comes from")
    settings: dict[Role, dict[str, Setting]] = Field(default_factory=dict)

    def settings_hash(self) -> str:
        """Return twelve hex digits over everything that changes how the method decodes."""
        body = self.model_dump(mode="json", exclude={"source"})
        return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:12]


class MethodDeployment(Settings):
    """One method of the portfolio and the resources of its own replicas, if it has any."""

    name: str = Field(description="of a built-in method, of the bundle's own, or of `spec`")
    spec: MethodSpec | None = Field(
        default=None, description="defines a method that is not built in"
    )
    min_replicas: int = Field(
        default=1, ge=0, description="0: the first replica starts when a prompt would go there"
    )
    max_replicas: int = Field(
        default=1, ge=1, description="above min_replicas the number follows the work"
    )
    num_cpus: float = Field(
        default=0.5, ge=0.0, description="logical CPUs that Ray reserves for a replica"
    )
    num_gpus: float = Field(
        default=0.0,
        ge=0.0,
        description="GPUs of a replica: 1 or a fraction; a replica with 0 sees no GPU",
    )
    accelerator_type: str | None = Field(
        default=None,
        min_length=1,
        description="the type of GPU, as Ray names it (H100, L4)  [default: any]",
    )
    max_replicas_per_node: int | None = Field(
        default=None,
        ge=1,
        le=100,
        description="bounds what a failing node takes with it; more replicas wait for another node",
    )
    max_ongoing_requests: int | None = Field(
        default=None,
        ge=1,
        description="requests that a replica takes at a time  [default: engine.max_batch + "
        "engine.max_waiting, so that requests wait in the replica; with autoscaling 1.25 x "
        "engine.max_batch, so that a new replica takes waiting requests]",
    )
    target_seconds: float = Field(
        default=4.0,
        gt=0.0,
        description="predicted seconds of outstanding work per replica, in full batches; more work "
        "adds replicas",
    )
    drain_seconds: float = Field(
        default=120.0,
        ge=0.0,
        description="time that a replica has to finish its answers when it is scaled down or "
        "replaced",
    )
    upscale_delay_seconds: float = Field(
        default=5.0, ge=0.0, description="time with more work before replicas are added"
    )
    downscale_delay_seconds: float = Field(
        default=300.0, ge=0.0, description="time with less work before replicas are removed"
    )

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        if self.max_replicas < max(1, self.min_replicas):
            raise ValueError(f"{self.name}: max_replicas must be at least min_replicas")
        if self.spec is not None and self.spec.name != self.name:
            raise ValueError(f"{self.name}: spec.name must be the same name")
        return self


class RouterConfig(Settings):
    """The routing table, how much the policy explores, and which methods operators prefer."""

    routing: Path | None = Field(default=None, description="default: routing in the bundle")
    encoder: Path | None = Field(default=None, description="default: the encoder that ships")
    default_method: str | None = Field(
        default=None, description="answers prompts without a cluster  [default: the table's]"
    )
    lossy: bool = Field(default=False, description="admit methods that are not lossless")
    exploration: float = Field(
        default=0.01,
        ge=0.0,
        le=0.5,
        description="share of latency that exploration may cost; 0 disables it",
    )
    weights: dict[str, Annotated[float, Field(ge=0.0, le=10.0)]] = Field(
        default={},
        description="divisors of the methods' predicted seconds when methods are compared; 0: the "
        "method only answers requests that name it",
    )
    pinned_clusters: dict[Annotated[int, Field(ge=0)], str] = Field(
        default={}, description="clusters whose prompts one method answers while it is available"
    )


class FeedbackConfig(Settings):
    """Where what is learned is kept, and what drafters learn from."""

    state_uri: str = Field(default="state", description="a folder, or any fsspec URI")
    drafter_training: bool = Field(
        default=False,
        description="keep prompts and answers to train drafters on; with http.guard.keys_file only "
        "those of keys that say `teaches: true`",
    )
    sample_tokens: int = Field(
        default=1_000_000,
        ge=1,
        description="tokens of prompts and answers that are kept, over all clusters; if there are "
        "more, the largest cluster gives up samples",
    )
    retain_hours: float = Field(
        default=168.0, gt=0.0, description="age at which a kept prompt and answer are deleted"
    )
    trainer_num_gpus: float = Field(
        default=0.0, ge=0.0, description="share of a GPU that trains drafters; 0: the CPU does"
    )


class AppConfig(Settings):
    """Everything `deployments.app.build` needs; a YAML file, the flags and serve.yaml's args."""

    bundle: Path = Field(
        default=Path("bundles/smollm2"),
        description="bundles/demo if this is not set and SmolLM2 is not imported",
    )
    layout: Literal["per_method", "shared"] = Field(
        default="per_method",
        description="shared: every replica holds all methods and has the resources of `shared`",
    )
    methods: tuple[MethodDeployment, ...] = Field(
        default=tuple(MethodDeployment(name=n) for n in DEFAULT_PORTFOLIO),
        description="default: the bundle's portfolio, or those for which it has the parts",
    )
    shared: MethodDeployment = Field(
        default=MethodDeployment(name="shared"), description="resources of a shared replica"
    )
    engine: EngineConfig = EngineConfig()
    router: RouterConfig = RouterConfig()
    feedback: FeedbackConfig = FeedbackConfig()
    http: HttpConfig = HttpConfig()

    @model_validator(mode="after")
    def _names(self) -> Self:
        names = [m.name for m in self.methods]
        if not names:
            raise ValueError("methods: name at least one method")
        if len(set(names)) != len(names):
            raise ValueError("methods: each method may be named once")
        if self.engine.openai is not None:
            servers = len(self.engine.openai.urls)
            if self.layout != "shared":
                raise ValueError("layout: must be shared with engine.openai, got per_method")
            if {self.shared.min_replicas, self.shared.max_replicas} != {servers}:
                raise ValueError(
                    f"shared: set min_replicas and max_replicas to {servers}, the number of "
                    "engine.openai.urls"
                )
        router = self.router
        named = {
            "router.default_method": [router.default_method] if router.default_method else [],
            "router.weights": list(router.weights),
            "router.pinned_clusters": list(router.pinned_clusters.values()),
        }
        for field, methods in named.items():
            for method in methods:
                if method not in names:
                    raise ValueError(f"{field}: {method!r} is not served")
        if router.weights and all(router.weights.get(name, 1.0) == 0.0 for name in names):
            raise ValueError("router.weights: at least one method needs a weight above 0")
        return self
