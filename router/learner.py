"""What routing learns from observations while it serves.

acceptance    sums of log acceptance over the profile's, by cluster, method and condition
              (`router.acceptance`).
times         step and prefill times compared with the profile (`router.times`).
failures      what failed responses cost, by method.
output        how long a cluster's responses are, from their tokens and the number that ended by
              themselves. A response that was cut off counts with the tokens that it had.
preferred     each cluster's fastest method (`router.preferred`).

Responses that were asked of a method by name teach no acceptance: another tenant's prompts are not
those that the router routes.
"""

import math
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Self

import numpy as np

from router import acceptance
from router.acceptance import HALF_LIFE, NOISE, OUTLIER, PRIOR_ANSWERS, Floats
from router.drift import DriftWatch
from router.predict import expected_output
from router.preferred import kept, preferred
from router.table import RoutingTableError
from router.times import MachineSpeed
from schemas import Live, Observation, RoutingTable, condition_of
from schemas.observation import WARM_UP

KEPT = 0.25
"""Share of what was learned that stays after a sign that it has changed: an outlier, or another
version of a head. And the probability that the profile is wrong about that head."""

REMEMBERED_IDS = 4096
"""Observation ids that are kept to count each observation once."""


_BY_CLUSTER, _BY_CELL = ("output", "answers"), ("weight", "total", "steps")
_BY_METHOD = "failures", "latest", "doubted"
"""Arrays of a Learner that survive a restart."""


class Learner:
    """Owns what one routing table learns; not thread-safe, one owner feeds it."""

    def __init__(self, table: RoutingTable) -> None:
        self._disk = self._table = table
        self._profiled = acceptance.profiled(table)
        self._weight, self._total = np.zeros((2, *table.live.gain.shape))
        self._steps = table.live.steps.copy()
        self._output, self._answers = table.live.output.copy(), table.live.answers.copy()
        self._long = np.zeros(len(table.assignment))
        """Tokens of each cluster's last response that counted as shorter than it was."""
        self._speed = MachineSpeed(table)
        self._failures = np.zeros((len(table.methods), 3))
        """By method: responses, failed ones, and the seconds that these took over the predicted."""
        self._latest = table.live.latest.copy()
        self._doubted = np.zeros(len(table.methods))
        self._heads: dict[str, int] = {}
        self._seen: OrderedDict[str, None] = OrderedDict()
        self.watch = DriftWatch(table)
        self._found: dict[int, acceptance.Posterior] = {}
        self._learned = True
        """Whether that makes another version of the table."""
        self._refresh(version=table.version)

    @property
    def table(self) -> RoutingTable:
        """The present version; a new object for every version, made when asked for."""
        if self._learned:
            self._refresh(self._table.version + 1)
        return self._table

    def observe(self, observations: Iterable[Observation]) -> bool:
        """Count each observation once; return whether that makes a new version of the table.

        Ids seen before, other fits and methods that the table does not have are ignored. A
        response that was cut off teaches as far as it came.
        """
        learned = [o for o in observations if self._accept(o)]
        for observation in learned:
            self._learn(observation)
        self._learned |= bool(learned)
        return bool(learned)

    def follow_heads(
        self, versions: Mapping[str, int], parts: Mapping[str, Collection[str]]
    ) -> bool:
        """Discount the acceptance evidence of methods whose head has changed since the last call;
        return whether any has.

        versions: by part, the version of the active head; a part without one has version 0, which
        is the profiled one. parts: by method, those it drafts with.
        """
        known = self._heads.keys() | versions.keys()
        changed = {p for p in known if self._heads.get(p, 0) != versions.get(p, 0)}
        self._heads = dict(versions)
        for m, name in enumerate(self._table.methods):
            own = parts.get(name, ())
            profiled = not any(versions.get(part, 0) for part in own)
            doubted = 0.0 if profiled else KEPT
            if doubted != self._doubted[m]:
                self._doubted[m], self._learned = doubted, True
                self._found.pop(m, None)
            if changed.intersection(own):
                for sums in (self._weight, self._total, self._steps):
                    sums[:, m] *= KEPT
                self._found.pop(m, None)
        self._learned |= bool(changed)
        return bool(changed)

    def _accept(self, observation: Observation) -> bool:
        identity = observation.observation_id
        usable = (
            observation.fit_id == self._table.fit_id
            and observation.stats.method in self._table.methods
            and observation.cluster < len(self._table.assignment)
        )
        if not usable or identity in self._seen:
            return False
        self._seen[identity] = None
        if len(self._seen) > REMEMBERED_IDS:
            self._seen.popitem(last=False)
        return True

    def _learn(self, observation: Observation) -> None:
        stats, m = observation.stats, self._table.methods.index(observation.stats.method)
        if observation.vector is not None:
            self.watch.see(observation.vector)
        if not observation.failed:
            self._speed.observe(self._table, observation)
        if observation.policy == WARM_UP:
            return
        self._learn_failures(observation, m)
        if observation.reason == "pinned":
            return
        self._latest[m] = self._latest.max() + 1.0
        if observation.cluster < 0 or observation.failed:
            return
        if observation.free_to_end:
            self._learn_output(observation)
        lossless = self._table.lossless.get(stats.method, False)
        # The prefill emits the first token, outside of the decode steps.
        steps = stats.target_steps - 1
        if min(stats.output_tokens - 1, steps) >= 1 and acceptance.learns_acceptance(
            stats.looping, lossless
        ):
            self._learn_acceptance(observation, m)

    def _learn_failures(self, observation: Observation, m: int) -> None:
        share, stats = 1.0 / observation.choices, observation.stats
        # A method that is avoided must not be avoided for ever: what failed may have been mended.
        self._failures *= 0.5 ** (share / HALF_LIFE)
        row = self._failures[m]
        row[0] += share
        if observation.failed:
            row[1:] += share, share * stats.total_seconds / max(observation.predicted_seconds, 1e-3)

    def _learn_output(self, observation: Observation) -> None:
        """Count the tokens of a response, and its end unless it was cut off.

        If every token is as likely to be the last, the mean length is all tokens over all ends, and
        the standard deviation is the mean. An outlier counts as the longest that is none, or as
        long as the outlier before it: a single one must not lift what is expected of all.
        """
        stats, k, share = observation.stats, observation.cluster, 1.0 / observation.choices
        forget = 0.5 ** (share / HALF_LIFE)
        usual = (1.0 + OUTLIER) * expected_output(self._table, k)
        counted = min(stats.output_tokens, max(usual, self._long[k]))
        if stats.output_tokens > usual and observation.choices == 1:
            self._long[k] = stats.output_tokens
        shown = np.asarray([counted, stats.finish_reason == "stop"])
        self._output[k] = forget * self._output[k] + share * shown
        if stats.finish_reason != "cancelled":
            self._answers[k] = forget * self._answers[k] + share

    def _learn_acceptance(self, observation: Observation, m: int) -> None:
        stats, k = observation.stats, observation.cluster
        condition = condition_of(stats.temperature, grammar=observation.grammar)
        steps = stats.target_steps - 1.0
        value = math.log((stats.output_tokens - 1.0) / steps)
        usual = math.log(self._profiled[k, m, condition])
        if observation.predicted_acceptance is not None:
            mean = float(self._table.regression_mean[k, m])
            usual += observation.predicted_acceptance - mean
        # No response emits less than a token a step, which lifts the mean of methods near 1.
        value -= acceptance.positive_part(usual, NOISE)
        cell = k, m, condition
        # Not the table's: responses may come in one batch, and each must know those before it.
        found = self._posterior(m)
        gain = float(found.gain[k, condition])
        most = OUTLIER * math.hypot(NOISE, float(found.error[k, condition]))
        if abs(value - gain) > most:
            # Most such responses say that the cell's traffic has changed.
            value = gain + math.copysign(most, value - gain)
            for sums in (self._weight, self._total):
                sums[cell] *= KEPT
        weight = steps / (steps + acceptance.STEPS_OF_NOISE) / observation.choices
        forget = 0.5 ** (weight / HALF_LIFE)
        self._weight[cell] = forget * self._weight[cell] + weight
        self._total[cell] = forget * self._total[cell] + weight * value
        self._found.pop(m, None)
        self._steps[k, m] = forget * self._steps[k, m] + steps / observation.choices

    def _loss(self) -> Floats:
        """Return the seconds [m] that failures cost for each second of a response.

        A request whose response fails is asked again, of a method that takes about as long.
        """
        responses, failed, seconds = self._failures.T
        share = failed / (responses + PRIOR_ANSWERS)
        lost = np.divide(seconds, failed, out=np.zeros(len(failed)), where=failed > 0.0)
        return np.asarray(share / (1.0 - share) * lost)

    def _posterior(self, m: int) -> acceptance.Posterior:
        """Return what is known of a method's acceptance, from all responses up to now."""
        if m not in self._found:
            sums = self._weight[:, m], self._total[:, m], float(self._doubted[m])
            self._found[m] = acceptance.posterior(self._disk, m, *sums)
        return self._found[m]

    def _refresh(self, version: int) -> None:
        """Make a version of the table from what was learned."""
        self._learned = False
        found = [self._posterior(m) for m in range(len(self._disk.methods))]
        live = Live(
            gain=np.stack([one.gain for one in found], axis=1),
            gain_error=np.stack([one.error for one in found], axis=1),
            method_error=np.asarray([one.shared for one in found]),
            steps=self._steps.copy(),
            output=self._output.copy(),
            answers=self._answers.copy(),
            loss=self._loss(),
            latest=self._latest.copy(),
            **self._speed.live(),
        )
        table = self._table.model_copy(update={"version": version, "live": live})
        self._table = table.model_copy(update={"assignment": preferred(table)})

    def state(self) -> dict[str, Any]:
        """Return what must survive a restart, as JSON values for `restore`."""
        table, names = self.table, (*_BY_CLUSTER, *_BY_CELL, *_BY_METHOD)
        return {
            **{name: getattr(self, f"_{name}").tolist() for name in names},
            "fit_id": table.fit_id,
            "version": table.version,
            "methods": list(table.methods),
            "assignment": [list(row) for row in table.assignment],
            "times": self._speed.state(),
            "heads": self._heads,
            "seen": list(self._seen),
        }

    @classmethod
    def restore(cls, table: RoutingTable, state: dict[str, Any]) -> Self:
        """Return a learner that continues from a state, without methods no longer served.

        Raises RoutingTableError when the state belongs to another fit or is not a state.
        """
        try:
            if state["fit_id"] != table.fit_id:
                raise RoutingTableError(
                    f"the saved state belongs to fit {state['fit_id']}, the routing table to "
                    f"{table.fit_id}; start it anew"
                )
            learner = cls(table)
            version = int(state["version"])
            for name in _BY_CLUSTER:
                getattr(learner, f"_{name}")[:] = np.asarray(state[name])
            old = {name: index for index, name in enumerate(state["methods"])}
            places = {m: old[name] for m, name in enumerate(table.methods) if name in old}
            here, there = list(places), list(places.values())
            for name in _BY_CELL:
                getattr(learner, f"_{name}")[:, here] = np.asarray(state[name])[:, there]
            for name in _BY_METHOD:
                getattr(learner, f"_{name}")[here] = np.asarray(state[name])[there]
            learner._heads = {str(part): int(n) for part, n in state["heads"].items()}
            if list(table.methods) == state["methods"]:
                learner._speed.restore(state["times"])
            assignment = kept(state["assignment"], table.methods, table.assignment)
            learner._seen = OrderedDict.fromkeys(str(i) for i in state["seen"])
        except (KeyError, TypeError, IndexError, ValueError) as error:
            if isinstance(error, RoutingTableError):
                raise
            raise RoutingTableError(f"the saved state is not readable: {error!r}") from error
        learner._found.clear()
        learner._table = table.model_copy(update={"assignment": assignment})
        learner._refresh(version)
        return learner

    def back_to(self, state: dict[str, Any]) -> Self:
        """Return to an earlier state, except for the ids counted and the version, which go on.

        Raises RoutingTableError if it is not a state of this table.
        """
        version = max(self.table.version, int(state.get("version", 0))) + 1
        return self.restore(self._disk, state | {"seen": list(self._seen), "version": version})

    def anew(self) -> Self:
        """Return a learner that has learned nothing; the table's version goes on."""
        return self.back_to(type(self)(self._disk).state())
