"""Which drafter each method of a shared engine uses, as the engine's processes are told."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from workers.batch_schedule import BatchSchedule
from workers.vllm_engine.drafting.adaptive import Options

KEY = "specadapt"
"""Where vLLM's additional_config holds the portfolio."""


@dataclass(frozen=True)
class Drafting:
    """One method: its drafter, and how many tokens it drafts at each batch size."""

    drafter: str
    schedule: BatchSchedule


@dataclass(frozen=True)
class Portfolio:
    """The drafting methods by name, and each drafter's options in vLLM's words.

    A method that drafts nothing is in neither. `host` is the drafter that vLLM itself was
    configured with, None where that is a class of ours. `adaptive` are the options of the method
    that chooses among drafters, where there is one.
    """

    methods: Mapping[str, Drafting]
    drafters: Mapping[str, Mapping[str, Any]]
    host: str | None
    adaptive: Options | None = None

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "Portfolio":
        """The inverse of `to_config`."""
        methods = {
            name: Drafting(
                body["drafter"], BatchSchedule(tuple(body["batches"]), tuple(body["gammas"]))
            )
            for name, body in config["methods"].items()
        }
        adaptive = config["adaptive"]
        return cls(
            methods,
            config["drafters"],
            config["host"],
            None if adaptive is None else Options.from_config(adaptive),
        )

    def to_config(self) -> dict[str, Any]:
        """Plain values only, as vLLM's additional_config takes them."""
        methods = {
            name: {"drafter": drafting.drafter, **asdict(drafting.schedule)}
            for name, drafting in self.methods.items()
        }
        drafters = {name: dict(options) for name, options in self.drafters.items()}
        adaptive = None if self.adaptive is None else self.adaptive.to_config()
        return {
            "methods": methods,
            "drafters": drafters,
            "host": self.host,
            "adaptive": adaptive,
        }

    def rows(self, methods: Sequence[str | None]) -> dict[str, list[int]]:
        """The batch's rows of each drafter, ascending; `methods` has one entry a row, None or a
        name that drafts nothing leaves its row out."""
        rows: dict[str, list[int]] = {}
        for row, name in enumerate(methods):
            if name is not None and name in self.methods:
                rows.setdefault(self.methods[name].drafter, []).append(row)
        return rows
