"""What an ingress knows of routing."""

from collections.abc import Sequence
from typing import Protocol

from schemas import DriftReport, LoadReport, Observation, RoutingTable


class RoutingState(Protocol):
    """Give the table in force, the replicas' loads and the state of learning; take observations."""

    @property
    def table(self) -> RoutingTable: ...

    @property
    def loads(self) -> Sequence[LoadReport]:
        """Return the last report of every replica."""

    @property
    def connected(self) -> bool:
        """Return whether the feedback actor answered the last call."""

    @property
    def problem(self) -> str | None:
        """Return why nothing is learned and stored at present; None if all is well."""

    @property
    def age_seconds(self) -> float:
        """Return the seconds since the feedback actor last confirmed the table, or since the
        start."""

    @property
    def epoch(self) -> int:
        """Return the epoch of the learned state's owner; 0 before its first answer."""

    @property
    def ingresses(self) -> int:
        """Return the number of ingresses that exchange with the feedback actor; 1 before its first
        answer."""

    @property
    def drift(self) -> DriftReport | None:
        """Return the drift report; None before the feedback actor's first answer."""

    @property
    def waiting(self) -> int:
        """Return the number of observations not yet acknowledged."""

    @property
    def dropped(self) -> int:
        """Return the number of observations dropped because too many waited."""

    def observe(self, observation: Observation) -> None:
        """Queue an observation without waiting."""
