"""What a report reads of each benchmark's JSON; whatever else is in a file may stay."""

from pydantic import BaseModel, ConfigDict

Interval = tuple[float, float]


class Shape(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Single(Shape):
    name: str
    speedup: float


class WithInterval(Shape):
    speedup: float
    ci95: Interval


class Ratio(Shape):
    ratio: float
    ci95: Interval


class Share(Shape):
    answers: int
    speedup: float
    best_of_prompt: float
    oracle_combine: float
    best_schedule: float
    ci95: dict[str, Interval]


class Reached(Share):
    by_domain: dict[str, Share]
    by_cluster: dict[str, Share] | None = None


class Bounds(Shape):
    answers: int
    best_single: Single
    fixed: dict[str, float]
    oracle_length: dict[str, float]
    best_of_prompt: float
    oracle_combine: float
    best_schedule: float
    combined: dict[str, WithInterval]
    ci95: dict[str, Interval]
    combine_over_best_single: float
    combine_over_best_single_ci95: Interval
    by_domain: dict[str, dict[str, float]]
    by_cluster: dict[str, dict[str, float]] | None = None
    routed_over: dict[str, Ratio] | None = None
    reached: dict[str, Reached] | None = None


class Router(Shape):
    embed_ms_p50: float
    prompts_per_minute: float


class Stage(Shape):
    step_ms: float
    draft_ms: float
    verify_ms: float
    sample_ms: float
    host_ms: float
    tokens_per_step: float


class Stages(Shape):
    loaded_mib: float
    stages: dict[str, dict[str, Stage]]


class Setting(Shape):
    speedup_vs_naive: float | None
    mat: float | None
    match_rate: float | None
    tokens_before_divergence: float | None
    excess_nats: float | None
    nats_over_plain: float | None
    kl_at_least: float | None
    as_if_temperature: float | None
    accuracy: float | None
    same_number: float | None


class Dial(Shape):
    method: str
    lossless: bool
    dial: str | None
    value: float | None
    by_temperature: dict[str, Setting]


class Quality(Shape):
    quality: dict[str, Dial]


SHAPES: dict[str, type[Shape]] = {
    "bench bounds": Bounds,
    "bench router": Router,
    "bench stages": Stages,
    "bench quality": Quality,
}
