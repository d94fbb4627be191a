"""The choice among a method's replicas: the one with the least work takes a request.

Work is outstanding tokens, and what the replica has to read of the prompt, over the replica's
speed; other methods' tokens weigh more (`router.replica_loads`). Ray Serve makes one router per
handle, inside the ingress process, and pickles this module by value. So the module must have no
variables: what the router shares with the ingress is in `deployments.request.in_flight`.
"""

import random
from collections.abc import Sequence
from typing import Any

from ray.serve.request_router import FIFOMixin, PendingRequest, RequestRouter

from deployments.request.in_flight import InFlight, published
from schemas import DecodeRequest


class FewestOutstandingTokens(FIFOMixin, RequestRouter):
    """Rank the replicas by their work, ties at random; Serve takes the first that is not
    full.

    A replica without a report yet counts with what this ingress has sent to it, so that it fills up
    like the others. One whose reports have stopped, or that is not healthy, comes last. If no
    replica has reported, Serve chooses by the number of requests.

    Requests are served in order (FIFOMixin): Ray otherwise identifies requests by the id of the
    HTTP request, which the responses to one prompt (`n`) share, and would never place the second.
    """

    def initialize_state(self, **_: Any) -> None:
        self._reported: set[str] = set()

    async def choose_replicas(
        self, candidate_replicas: Sequence[Any], pending_request: PendingRequest | None = None
    ) -> list[list[Any]]:
        """Return one replica per rank, best first; Serve calls again after a pause if all were
        full."""
        if pending_request is not None:
            pending_request.routing_context.should_backoff = True
        shuffled = random.sample(candidate_replicas, len(candidate_replicas))
        in_flight, request = published(self.app_name), _decode_request(pending_request)
        if in_flight is None or request is None:
            return [shuffled]
        # Where there is no choice nothing is looked up.
        ranked = shuffled if len(shuffled) == 1 else self._ranked(shuffled, in_flight, request)
        if not ranked:
            return [shuffled]
        in_flight.place(request.request_id, ranked[0].replica_id.unique_id)
        return [[replica] for replica in ranked]

    def _ranked(
        self, shuffled: Sequence[Any], in_flight: InFlight, request: DecodeRequest
    ) -> Sequence[Any]:
        """Return the replicas for the request, best first; none if none has reported."""
        replicas = {replica.replica_id.unique_id: replica for replica in shuffled}
        reporting, names = in_flight.present().index.keys(), replicas.keys()
        self._reported = (self._reported | reporting) & names
        if not reporting & names:
            return []
        silent = self._reported - reporting
        return [replicas[name] for name in in_flight.ranked(list(names), request, silent)]

    def on_request_routed(
        self, pending_request: PendingRequest, replica_id: Any, _result: Any
    ) -> None:
        """Record which replica accepted the request: not always the first choice."""
        in_flight, request = published(self.app_name), _decode_request(pending_request)
        if in_flight is not None and request is not None:
            in_flight.place(request.request_id, replica_id.unique_id, accepted=True)


def _decode_request(pending: PendingRequest | None) -> DecodeRequest | None:
    """Return the request of a call of `generate`; None for other calls."""
    first = pending.args[0] if pending is not None and pending.args else None
    return first if isinstance(first, DecodeRequest) else None
