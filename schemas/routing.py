"""The routing table: what is known about every method on every cluster of prompts.

It keeps two factors instead of one speed: acceptance (tokens per target step) depends on the
prompt, step time on the machine and the load. `router.table` saves it as JSON plus npz.
"""

from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, model_validator
from pydantic.functional_validators import BeforeValidator

from schemas.base import Schema

TEMPERATURE_BANDS: tuple[str, ...] = ("greedy", "low", "high")


def temperature_band(temperature: float) -> int:
    """Return the index into TEMPERATURE_BANDS: 0 for temperature 0, 1 up to 0.7, 2 above."""
    if temperature == 0.0:
        return 0
    return 1 if temperature <= 0.7 else 2


CONDITIONS: tuple[str, ...] = (*TEMPERATURE_BANDS, "grammar")
"""Under which methods accept differently: the temperature bands, and grammars, which force tokens
that every method drafts."""


def condition_of(temperature: float, *, grammar: bool) -> int:
    """Return the index into CONDITIONS."""
    return CONDITIONS.index("grammar") if grammar else temperature_band(temperature)


def _array(value: Any) -> NDArray[np.float64]:
    return np.asarray(value, dtype=np.float64)


Array = Annotated[NDArray[np.float64], BeforeValidator(_array)]


Favourites = tuple[tuple[str, ...], ...]


class EncoderInfo(Schema):
    """The encoder of the centroids; a table is refused under any other."""

    name: str
    dimension: int = Field(gt=0)
    sha256: str = Field(description="hash over the source weights and the export recipe")


class MeasuredUnder(Schema):
    """The conditions of the step-time measurements; a profile taken under others is refused."""

    machine: str
    device: str
    dtype: str
    threads: int = Field(ge=1)
    replicas: int = Field(default=1, ge=1, description="replicas running side by side")
    bundle: str = Field(description="name and content hash of the model bundle")


LIVE_AXES: dict[str, str] = {
    **dict.fromkeys(("gain", "gain_error"), "kmc"),
    "steps": "km",
    "output": "k2",
    "answers": "k",
    **dict.fromkeys(("method_error", "step_ratio", "batch_ratio", "step_error"), "m"),
    **dict.fromkeys(("prefill_ratio", "prefill_error", "loss", "latest"), "m"),
}
"""The axes of Live's arrays: k clusters, m methods, c conditions."""
TABLE_AXES: dict[str, str] = {
    "centroids": "kd",
    **dict.fromkeys(("acceptance_tokens", "acceptance_steps"), "kmt"),
    **dict.fromkeys(("step_seconds", "step_count"), "mBC"),
    **dict.fromkeys(("output_tokens", "output_count"), "k"),
    **dict.fromkeys(("speedup", "speedup_count", "regression_mean"), "km"),
    **dict.fromkeys(("prefill_seconds", "regression_range"), "m2"),
    "regression": "mf",
}
"""The axes of a table's own arrays: d dimensions, t temperature bands, B batch sizes, C context
lengths, f inputs of the regression."""


class Live(Schema):
    """What a table has learned while serving; k clusters, m methods, c conditions.

    gain, gain_error [k, m, c]: posterior mean and standard deviation of log acceptance over the
    profile's. method_error [m]: the part of the error that all clusters of a method share. steps
    [k, m]: decode steps behind it. output [k, 2]: output tokens of live responses in sum, and how
    many of them ended by themselves. answers [k]: their number. step_ratio [m]: ratio of live to
    profiled step time of one sequence. batch_ratio [m]: the further ratio in a batch of eight or
    more; in between it is linear in the logarithm of the batch. prefill_ratio [m]: the same of
    prefill time. step_error, prefill_error [m]: standard deviations of their logarithms. loss [m]:
    seconds that failures cost for each second of a response. latest [m]: the number, from 1, of a
    method's latest routed response among those of all methods; 0 without any.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    gain: Array
    gain_error: Array
    method_error: Array
    steps: Array
    output: Array
    answers: Array
    step_ratio: Array
    batch_ratio: Array
    step_error: Array
    prefill_ratio: Array
    prefill_error: Array
    loss: Array
    latest: Array

    @classmethod
    def nothing(cls, k: int, m: int) -> Self:
        """Return the record of a table that has learned nothing."""
        sizes = {"k": k, "m": m, "c": len(CONDITIONS), "2": 2}
        shapes = {name: [sizes[axis] for axis in axes] for name, axes in LIVE_AXES.items()}
        # Ratios are factors, all others are sums or logarithms.
        return cls(**{n: np.full(of, 1.0 * n.endswith("_ratio")) for n, of in shapes.items()})


class TableUpdate(Schema):
    """What a version of a table changes in earlier versions of the same fit."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    version: int = Field(ge=0)
    assignment: Favourites
    live: Live


def _sizes(known: dict[str, Any]) -> tuple[int, int]:
    """Return the clusters and methods of a table's fields that are read before its arrays."""
    return len(known["assignment"]), len(known["methods"])


class RoutingTable(Schema):
    """k clusters, m methods, t temperature bands, B batch sizes, C context lengths.

    centroids [k, d]. acceptance_tokens, acceptance_steps [k, m, t]: their ratio is the acceptance,
    their size the evidence. step_seconds, step_count [m, B, C] on the grids. prefill_seconds
    [m, 2]: a constant and seconds per prompt token. output_tokens, output_count [k]: mean output
    tokens and the responses behind them. speedup, speedup_count [k, m]: harmonic mean of paired
    speedups over the profile's baseline, for reports. live: what was learned while serving.

    A table that corrects its cells for the single prompt (`router.prompt`) has f `features` and
    regression [m, d + f]: weights of a prompt's vector and features, whose sum predicts its log
    acceptance. regression_range [m, 2]: the least and the greatest prediction for the prompts of
    the fit. regression_mean [k, m]: the mean prediction for a cluster's prompts, at which
    acceptance is the cell's. Otherwise `features` is empty, regression is [m, 0], and the other
    two are 0.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    fit_id: str
    version: int = Field(default=0, ge=0)
    encoder: EncoderInfo
    measured_under: MeasuredUnder
    methods: tuple[str, ...] = Field(min_length=1)
    settings_hashes: dict[str, str]
    lossless: dict[str, bool]
    objective: Literal["speedup"] = Field(
        default="speedup", description="mean over prompts of seconds over plain decoding's"
    )
    default_method: str
    assignment: Favourites = Field(
        description="the favourite of each cluster [k] in each temperature band [t]"
    )
    centroids: Array
    acceptance_tokens: Array
    acceptance_steps: Array
    batch_grid: tuple[int, ...]
    context_grid: tuple[int, ...]
    step_seconds: Array
    step_count: Array
    prefill_seconds: Array
    output_tokens: Array
    output_count: Array
    speedup: Array
    speedup_count: Array
    live: Live = Field(default_factory=lambda known: Live.nothing(*_sizes(known)))
    features: tuple[str, ...] = ()
    regression: Array = Field(default_factory=lambda known: np.zeros((_sizes(known)[1], 0)))
    regression_range: Array = Field(default_factory=lambda known: np.zeros((_sizes(known)[1], 2)))
    regression_mean: Array = Field(default_factory=lambda known: np.zeros(_sizes(known)))
    provenance: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _shapes_agree(self) -> Self:
        t, d = len(TEMPERATURE_BANDS), self.encoder.dimension
        sizes = {"k": len(self.assignment), "m": len(self.methods), "t": t, "d": d, "2": 2}
        sizes |= {"B": len(self.batch_grid), "C": len(self.context_grid), "c": len(CONDITIONS)}
        sizes["f"] = d + len(self.features) if self.features else 0
        arrays = dict(self) | dict(self.live)
        for name, axes in (TABLE_AXES | LIVE_AXES).items():
            actual, shape = arrays[name].shape, tuple(sizes[axis] for axis in axes)
            if actual != shape:
                raise ValueError(f"{name} has shape {actual}, expected {shape}")
        if any(len(row) != t for row in self.assignment):
            raise ValueError(f"assignment: each cluster needs a favourite in each of {t} bands")
        named = {name for row in self.assignment for name in row}
        unknown = (named | {self.default_method} | self.lossless.keys()) - {*self.methods}
        if unknown:
            raise ValueError(f"methods not in the table: {', '.join(sorted(unknown))}")
        return self

    def with_live(self, **arrays: NDArray[np.float64]) -> Self:
        """Return the table with these arrays in `live`."""
        return self.model_copy(update={"live": self.live.model_copy(update=arrays)})

    def update(self) -> TableUpdate:
        """Return what this version changes in earlier ones of its fit."""
        return TableUpdate(version=self.version, assignment=self.assignment, live=self.live)

    def updated(self, update: TableUpdate) -> Self:
        """Return the table as of a later version of its fit."""
        return self.model_copy(update=dict(update))


class DriftReport(Schema):
    """The state of the drift test (`router.drift`)."""

    share_farther: float | None = Field(
        default=None, description="the statistic; None until the window is full"
    )
    alarm_above: float | None = Field(
        default=None, description="threshold of the statistic; None without a reference"
    )
    prompts: int = Field(default=0, ge=0, description="prompts in the window")
    window: int = Field(ge=1, description="prompts that are compared with the reference")


class Snapshot(Schema):
    """A state that can be restored."""

    number: int = Field(ge=1)
    at: str = Field(description="ISO 8601, UTC")
    occasion: Literal["time", "rollback", "reset"] = Field(
        description="time: the interval has passed; else: made before this event"
    )
    fit_id: str
    version: int = Field(ge=0, description="of its table")
    clusters: int = Field(ge=1)
    favourites: dict[str, int] = Field(
        description="by method, the clusters and temperature bands whose favourite it is"
    )
