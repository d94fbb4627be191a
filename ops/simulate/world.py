"""A simulated service without its replicas."""

from dataclasses import dataclass

from ops.simulate.costs import StepCosts
from ops.simulate.overhead import NOTHING, Overhead
from ops.simulate.workload import NEVER, Workload
from schemas import EngineConfig, RouterConfig, RoutingTable


@dataclass(frozen=True)
class World:
    """What does not depend on the replicas.

    report_seconds: the maximum age of a load report. start_seconds: from when a replica is wanted
    until it serves. flush_seconds: the interval of learning, None for never. kills: when the
    busiest replica dies. ingresses: each polls the load reports for itself and does not know what
    the others have sent since; if cores are shared, requests pass it one by one. turns: of every
    conversation. report_prefixes: whether replicas report which turns they hold.
    """

    table: RoutingTable
    router: RouterConfig
    engine: EngineConfig
    costs: StepCosts
    workload: Workload
    report_seconds: float
    start_seconds: float
    overhead: Overhead = NOTHING
    flush_seconds: float | None = None
    kills: tuple[float, ...] = ()
    ingresses: int = 1
    turns: int = 1
    report_prefixes: bool = True
    deadline: float | None = None
    patience: float | None = None

    @property
    def given_seconds(self) -> float:
        """Return the seconds that an answer has."""
        return min((s for s in (self.deadline, self.patience) if s is not None), default=NEVER)
