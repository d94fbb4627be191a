"""An ingress of a simulated service: what it knows of the replicas, by the code that serves."""

import random
from collections.abc import Callable, Iterable
from dataclasses import replace

from deployments.request.in_flight import InFlight
from ops.simulate.workload import Request
from router.replica_loads import ReplicaLoads
from schemas import DecodeRequest, LoadReport, RoutingTable


class Ingress:
    """The replicas' loads by an ingress's last poll and what it has sent itself, which
    `deployments.request.in_flight` puts together.

    awake: whether its next poll is due.
    """

    def __init__(self, table: Callable[[], RoutingTable], seed: int) -> None:
        """table: the one in force."""
        self.awake = False
        self._reports: tuple[LoadReport, ...] = ()
        self._in_flight = InFlight(lambda: self._reports, table)
        self._sent: dict[int, DecodeRequest] = {}
        self._draws = random.Random(seed)

    def polled(self, reports: Iterable[LoadReport]) -> None:
        """Take the replicas' last reports."""
        self._reports = tuple(reports)

    def loads(self) -> ReplicaLoads:
        """Return the loads to decide by."""
        return self._in_flight.present()

    def hold(self, request: Request) -> None:
        """Note how much of a prompt each replica holds."""
        question = request.question
        held = self._in_flight.held(question.token_ids, request.scope)
        request.question = replace(question, features=replace(question.features, held=held))

    def begin(self, request: Request, method: str) -> None:
        """Count a request from now on; its replica is unknown."""
        self._sent[request.number] = sent = request.decode(method)
        self._in_flight.begin(sent)

    def order(self, request: Request, hosts: Iterable[str]) -> list[str]:
        """Return the replicas by which should take the request, as Serve's router asks them."""
        names = list(hosts)
        self._draws.shuffle(names)
        return self._in_flight.ranked(names, self._sent[request.number])

    def accepted(self, request: Request, replica: str) -> None:
        """Record which replica has taken a request."""
        self._in_flight.accepted(str(request.number), replica)

    def of(self, request: Request) -> tuple[DecodeRequest, LoadReport | None]:
        """Return a request as it was sent, and what is known of its replica."""
        sent, loads = self._sent[request.number], self.loads()
        replica = self._in_flight.replica(sent.request_id)
        known = None if replica is None else loads.index.get(replica)
        return sent, None if known is None else loads.report(known)

    def ended(self, request: Request) -> None:
        """Record that a request's last token is out."""
        del self._sent[request.number]
        self._in_flight.ended(str(request.number))

    def give_up(self, request: Request) -> None:
        """Count a request no longer, which no replica has taken or whose replica has died."""
        del self._sent[request.number]
        self._in_flight.give_up(str(request.number))
