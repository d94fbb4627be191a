"""The routing table: what is known of every method on every cluster of prompts.

Two factors instead of one speed: acceptance (tokens per target step) depends on the prompt,
step time depends on the machine and the load. Saved by `router.table` as JSON plus npz.
"""

from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, model_validator
from pydantic.functional_validators import BeforeValidator

from schemas.base import Schema

TEMPERATURE_BANDS: tuple[str, ...] = ("greedy", "low", "high")


def temperature_band(temperature: float) -> int:
    """Index into TEMPERATURE_BANDS: 0 is temperature 0, 1 is up to 0.7, 2 is above."""
    if temperature == 0.0:
        return 0
    return 1 if temperature <= 0.7 else 2


def _array(value: Any) -> NDArray[np.float64]:
    return np.asarray(value, dtype=np.float64)


Array = Annotated[NDArray[np.float64], BeforeValidator(_array)]


def by_band(value: Any) -> Any:
    """Favourites [k][t], of tables too that have one for each cluster, which is that of every
    band."""
    if not isinstance(value, (list, tuple)):
        return value
    return [[row] * len(TEMPERATURE_BANDS) if isinstance(row, str) else row for row in value]


Favourites = Annotated[tuple[tuple[str, ...], ...], BeforeValidator(by_band)]


Objective = Literal["speedup", "seconds"]
"""What routing makes small: `speedup`, the mean over prompts of seconds over plain decoding's, in
which every answer counts alike; `seconds`, the mean of seconds, in which long answers count for
more."""


class EncoderInfo(Schema):
    """Which encoder the centroids live in; a table is refused under any other."""

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


class RoutingTable(Schema):
    """k clusters, m methods, t temperature bands, B batch sizes, C context lengths.

    Arrays: centroids [k, d]; acceptance_tokens and acceptance_steps [k, m, t] (their ratio is the
    acceptance, their size the evidence); live_tokens and live_steps likewise, added online;
    step_seconds and step_count [m, B, C] on the grids; live_step_ratio [m], the factor by which
    live steps of one sequence differ from the measured grid, live_batch_ratio [m], the further
    factor of a batch of eight and more (1 in a table that does not say), which between them goes
    with the batch's logarithm, and live_step_weight [m], the answers behind both (none in a table
    that does not say); prefill_seconds [m, 2]: a constant and seconds per prompt
    token; live_prefill_ratio [m], the factor by which live prefills differ from that line, and
    live_cached_share [m], the share of its prompts' tokens that a method finds in the prefix cache
    and does not read (1 and 0 in a table that does not say); output_tokens and output_count [k],
    means and the answers behind them; live_output [k, 2], the sum of the tokens of live answers and
    how many of them ended by themselves, and live_answers [k], how many they are;
    speedup and speedup_count [k, m]: harmonic mean of paired speedups over the profile's
    baseline, for reports.

    A table that corrects its cells for the single prompt (`router.regression`) has `features`, f of
    them, and regression [m, d + f]: weights of a prompt's vector and features, whose sum is what
    is foretold of its log acceptance. regression_range [m, 2]: the least and the most that was
    foretold of the prompts learned from; regression_mean [k, m]: what is foretold of a cluster's
    prompts on the mean, at which acceptance is the cell's. Otherwise `features` is empty,
    regression [m, 0], and the two others are 0.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    fit_id: str
    version: int = Field(default=0, ge=0)
    encoder: EncoderInfo
    measured_under: MeasuredUnder
    methods: tuple[str, ...] = Field(min_length=1)
    settings_hashes: dict[str, str]
    lossless: dict[str, bool]
    objective: Objective = "speedup"
    default_method: str
    assignment: Favourites = Field(
        description="the favourite of each cluster [k] in each temperature band [t]"
    )
    centroids: Array
    acceptance_tokens: Array
    acceptance_steps: Array
    live_tokens: Array
    live_steps: Array
    batch_grid: tuple[int, ...]
    context_grid: tuple[int, ...]
    step_seconds: Array
    step_count: Array
    live_step_ratio: Array
    live_batch_ratio: Array
    live_step_weight: Array
    prefill_seconds: Array
    live_prefill_ratio: Array
    live_cached_share: Array
    output_tokens: Array
    output_count: Array
    live_output: Array
    live_answers: Array
    speedup: Array
    speedup_count: Array
    features: tuple[str, ...] = ()
    regression: Array
    regression_range: Array
    regression_mean: Array
    provenance: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _nothing_said(cls, values: Any) -> Any:
        """What a table stands for that was saved before there were such arrays."""
        if not isinstance(values, dict):
            return values
        k, m = len(values.get("assignment", ())), len(values.get("methods", ()))
        nothing = {
            "live_batch_ratio": np.ones(m),
            "live_step_weight": np.zeros(m),
            "live_prefill_ratio": np.ones(m),
            "live_cached_share": np.zeros(m),
            "live_output": np.zeros((k, 2)),
            "live_answers": np.zeros(k),
            "regression": np.zeros((m, 0)),
            "regression_range": np.zeros((m, 2)),
            "regression_mean": np.zeros((k, m)),
        }
        return nothing | values

    @model_validator(mode="after")
    def _shapes_agree(self) -> Self:
        k, m, t = len(self.assignment), len(self.methods), len(TEMPERATURE_BANDS)
        grid = (m, len(self.batch_grid), len(self.context_grid))
        expected = {
            "centroids": (k, self.encoder.dimension),
            "acceptance_tokens": (k, m, t),
            "acceptance_steps": (k, m, t),
            "live_tokens": (k, m, t),
            "live_steps": (k, m, t),
            "step_seconds": grid,
            "step_count": grid,
            "live_step_ratio": (m,),
            "live_batch_ratio": (m,),
            "live_step_weight": (m,),
            "prefill_seconds": (m, 2),
            "live_prefill_ratio": (m,),
            "live_cached_share": (m,),
            "output_tokens": (k,),
            "output_count": (k,),
            "live_output": (k, 2),
            "live_answers": (k,),
            "speedup": (k, m),
            "speedup_count": (k, m),
            "regression": (m, self.encoder.dimension + len(self.features) if self.features else 0),
            "regression_range": (m, 2),
            "regression_mean": (k, m),
        }
        for name, shape in expected.items():
            actual = getattr(self, name).shape
            if actual != shape:
                raise ValueError(f"{name} has shape {actual}, expected {shape}")
        if any(len(row) != t for row in self.assignment):
            raise ValueError(f"assignment: each cluster has a favourite in each of {t} bands")
        named = {name for row in self.assignment for name in row}
        unknown = (named | {self.default_method} | self.lossless.keys()) - {*self.methods}
        if unknown:
            raise ValueError(f"methods not in the table: {', '.join(sorted(unknown))}")
        return self
