"""What an ingress knows of routing: read by whoever answers, kept up to date elsewhere."""

from collections.abc import Sequence
from typing import Protocol

from schemas import DriftReport, LoadReport, Observation, ObservedReport, RoutingTable


class RoutingState(Protocol):
    """The table in force, the replicas' loads, and where observations of answers go."""

    @property
    def table(self) -> RoutingTable: ...

    @property
    def loads(self) -> Sequence[LoadReport]:
        """Every replica's last report, as far as it is known."""

    @property
    def connected(self) -> bool:
        """Whether the feedback actor answered the last time."""

    @property
    def problem(self) -> str | None:
        """Why nothing is learned and stored at present; None where it is."""

    @property
    def age_seconds(self) -> float:
        """Since the feedback actor last confirmed the table, or else since the start."""

    @property
    def epoch(self) -> int:
        """Of the learned state's owner; 0 until it was heard from."""

    @property
    def drift(self) -> DriftReport | None:
        """None until the feedback actor was heard from."""

    @property
    def observed(self) -> ObservedReport | None:
        """What routing would have won; None where it was never only observed."""

    @property
    def waiting(self) -> int:
        """Observations not yet acknowledged."""

    @property
    def dropped(self) -> int:
        """Observations given up because too many waited."""

    def observe(self, observation: Observation) -> None:
        """Queue an observation; never waits."""
