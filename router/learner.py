"""What routing learns from observations while it serves.

Each estimate has its own memory:

acceptance    per cluster x method x temperature band. An observation decays what was learned about
              all methods in its cluster and band, by half in HALF_LIFE answers, so that a method
              that was not tried for long becomes uncertain (`evidence.log_error`) and is tried.
              With a regression, steps count as at deviation 0: what is predicted for the prompt
              alone must not be learned once more for its cluster (`router.prompt`). Offline counts
              are the prior; they stay, as OFFLINE_ANSWERS answers at most. Both are discounted
              when another head drafts for a method (`follow_heads`).
output        per cluster: how long responses are, from their tokens and the number that ended by
              themselves, with the same half-life.
machine speed per method: step and prefill times compared with the profile (`router.machine`).
preferred     a cluster's preferred method changes to a method that is predicted to be faster by
method        more than HYSTERESIS, with a probability of at least CONFIDENCE, when both have
              MIN_EVIDENCE_ANSWERS. It returns to the fit's preferred method without a margin, once
              that is predicted to be as fast on as much evidence.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Self

import numpy as np

from router import decaying_sums, evidence, favourites
from router.evidence import acceptance_evidence, learns_acceptance
from router.machine import MachineSpeed
from router.predict import expected_output
from router.table import RoutingTableError
from schemas import Live, Observation, RoutingTable, temperature_band

KEPT_OF_HEAD = 0.25
"""Share of a method's acceptance evidence that stays when another version of its head drafts: the
version was tuned from the earlier one, and accepts some percent more or less."""

KEPT_ANSWERS = 2.0
"""Live answers of a method that other methods' responses leave in a cell. A profile that is off by
a factor of four counts as less than that next to them, so it does not come back into force; and so
few leave the method uncertain, so it is tried again."""

REMEMBERED_IDS = 4096
"""Observation ids that are kept to count each observation once."""


class Learner:
    """Owns what one routing table learns; not thread-safe, one owner feeds it."""

    def __init__(self, table: RoutingTable) -> None:
        self._table = table
        self._fitted = table.assignment
        self._tokens = table.live.tokens.copy()
        self._steps = table.live.steps.copy()
        self._output = table.live.output.copy()
        self._answers = table.live.answers.copy()
        self._long = np.zeros(len(table.assignment))
        """Tokens of each cluster's last response that counted as shorter than it was."""
        self._speed = MachineSpeed(len(table.methods), np.log(table.live.batch_ratio))
        self._profile_share = table.live.profile_share.copy()
        self._heads: dict[str, int] = {}
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._learned = False
        """Whether that makes another version of the table."""

    @property
    def table(self) -> RoutingTable:
        """The present version; a new object for every version. Versions are made when asked for,
        because preferred methods take 40 ms at a thousand clusters."""
        if self._learned:
            self._learned = False
            table = self._table.model_copy(update={"version": self._table.version + 1})
            self._table = table.model_copy(update={"assignment": self._favourites(table)})
        return self._table

    def observe(self, observations: Iterable[Observation]) -> bool:
        """Count each observation once; return whether that makes a new version of the table.

        Ids seen before, other fits, methods that the table does not have, and failed responses are
        ignored. A cancelled answer teaches step time and acceptance as far as it came.
        """
        learned = [o for o in observations if self._accept(o)]
        for observation in learned:
            self._learn(observation)
        if learned:
            self._refresh()
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
            self._profile_share[m] = 1.0 if profiled else KEPT_OF_HEAD
            if changed.intersection(own):
                self._tokens[:, m] *= KEPT_OF_HEAD
                self._steps[:, m] *= KEPT_OF_HEAD
        if changed:
            self._refresh()
        return bool(changed)

    def _accept(self, observation: Observation) -> bool:
        stats = observation.stats
        identity = observation.observation_id
        usable = (
            observation.fit_id == self._table.fit_id
            and stats.method in self._table.methods
            and stats.finish_reason != "error"
            and observation.cluster < len(self._table.assignment)
        )
        if not usable or identity in self._seen:
            return False
        self._seen[identity] = None
        if len(self._seen) > REMEMBERED_IDS:
            self._seen.popitem(last=False)
        return True

    def _learn(self, observation: Observation) -> None:
        stats = observation.stats
        whole = stats.finish_reason != "cancelled" and observation.free_to_end
        if observation.cluster >= 0 and whole:
            self._learn_output(observation)
        self._speed.observe(self._table, observation)
        # The prefill emits the first token, outside of the decode steps.
        tokens, steps = stats.output_tokens - 1, stats.target_steps - 1
        lossless = self._table.lossless.get(stats.method, False)
        if min(tokens, steps) < 1 or observation.cluster < 0:
            return
        if not observation.grammar and learns_acceptance(stats.looping, lossless):
            self._learn_acceptance(observation)

    def _learn_output(self, observation: Observation) -> None:
        """Count the tokens of a response, and its end unless it was cut off.

        If every token is as likely to be the last, the mean length is all tokens over all ends. An
        answer counts as at most MOST_ANSWERS of the expected length, or as long as the one before
        it that exceeded this: a single one must not lift what is expected of all.
        """
        stats, k, share = observation.stats, observation.cluster, 1.0 / observation.choices
        forget = 0.5 ** (share / decaying_sums.HALF_LIFE)
        usual = evidence.MOST_ANSWERS * expected_output(self._table, k)
        counted = min(stats.output_tokens, max(usual, self._long[k]))
        if stats.output_tokens > usual and observation.choices == 1:
            self._long[k] = stats.output_tokens
        shown = np.asarray([counted, stats.finish_reason == "stop"])
        self._output[k] = forget * self._output[k] + share * shown
        self._answers[k] = forget * self._answers[k] + share

    def _learn_acceptance(self, observation: Observation) -> None:
        stats, k = observation.stats, observation.cluster
        m, band = self._table.methods.index(stats.method), temperature_band(stats.temperature)
        whole = acceptance_evidence(
            stats.output_tokens,
            stats.target_steps,
            self._table.objective,
            float(self._table.output_tokens[k]),
            evidence.deviation(self._table, k, m, band, observation.predicted_acceptance),
        )
        tokens, steps = (part / observation.choices for part in whole)
        forget = 0.5 ** (tokens / evidence.ANSWER_TOKENS / decaying_sums.HALF_LIFE)
        # A cell that nothing was learned of lately keeps a little, or a wrong profile would count
        # again.
        own, known = np.arange(len(self._table.methods)) == m, self._tokens[k, :, band]
        fading = own | (known > KEPT_ANSWERS * evidence.ANSWER_TOKENS)
        self._tokens[k, fading, band] *= forget
        self._steps[k, fading, band] *= forget
        self._tokens[k, m, band] += tokens
        self._steps[k, m, band] += steps

    def _refresh(self) -> None:
        """Put what was learned into the table, for what is learned next."""
        self._learned = True
        ratio, batch_ratio = self._speed.step_ratios()
        live = Live(
            tokens=self._tokens.copy(),
            steps=self._steps.copy(),
            output=self._output.copy(),
            answers=self._answers.copy(),
            step_ratio=ratio,
            batch_ratio=batch_ratio,
            context_slope=self._speed.context_slopes(),
            step_weight=self._speed.step_weight(),
            prefill_ratio=self._speed.prefill_ratios(),
            profile_share=self._profile_share.copy(),
        )
        self._table = self._table.model_copy(update={"live": live})

    def _favourites(self, table: RoutingTable) -> tuple[tuple[str, ...], ...]:
        # [k][t][m] as lists, which give single values faster than arrays.
        seconds, answers, errors = (
            np.moveaxis(cells, 2, 1).tolist()
            for cells in (
                favourites.typical_seconds(table),
                evidence.answers(table),
                evidence.log_error(table),
            )
        )

        def of(k: int, band: int, name: str) -> str:
            current, fitted = map(table.methods.index, (name, self._fitted[k][band]))
            # The method that replaced it may have looked faster than it is.
            known = answers[k][band][fitted] >= favourites.MIN_EVIDENCE_ANSWERS
            if known and seconds[k][band][fitted] <= seconds[k][band][current]:
                current = fitted
            winner = favourites.favourite(
                seconds[k][band],
                answers[k][band],
                errors[k][band],
                current,
                range(len(table.methods)),
            )
            return table.methods[winner]

        return tuple(
            tuple(of(k, band, name) for band, name in enumerate(row))
            for k, row in enumerate(table.assignment)
        )

    def state(self) -> dict[str, Any]:
        """Return what must survive a restart, as JSON values for `restore`."""
        table = self.table
        return self._speed.state() | {
            "fit_id": table.fit_id,
            "version": table.version,
            "methods": list(table.methods),
            "assignment": [list(row) for row in table.assignment],
            "live_tokens": self._tokens.tolist(),
            "live_steps": self._steps.tolist(),
            "live_output": self._output.tolist(),
            "live_answers": self._answers.tolist(),
            "live_profile_share": self._profile_share.tolist(),
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
            learner._output[:] = np.asarray(state["live_output"])
            learner._answers[:] = np.asarray(state["live_answers"])
            old = {name: index for index, name in enumerate(state["methods"])}
            places = {m: old[name] for m, name in enumerate(table.methods) if name in old}
            here, there = list(places), list(places.values())
            learner._tokens[:, here] = np.asarray(state["live_tokens"])[:, there]
            learner._steps[:, here] = np.asarray(state["live_steps"])[:, there]
            learner._profile_share[here] = np.asarray(state["live_profile_share"])[there]
            learner._heads = {str(part): int(n) for part, n in state["heads"].items()}
            learner._speed.restore(state, places)
            assignment = favourites.kept(state["assignment"], table.methods, table.assignment)
            learner._seen = OrderedDict.fromkeys(str(i) for i in state["seen"])
        except (KeyError, TypeError, IndexError) as error:
            raise RoutingTableError(f"the saved state is not readable: {error!r}") from error
        learner._table = table.model_copy(update={"version": version, "assignment": assignment})
        learner._refresh()
        return learner
