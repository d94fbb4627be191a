"""Observations to new estimates: what routing learns while it serves.

What is learned, each with the memory that suits it:

acceptance    per cluster x method x temperature band. An observation weakens what was learned of
              all methods in its cluster and band, by half in `half_life` answers' worth of
              them, so that a method not tried for long becomes uncertain (`belief.log_error`)
              and is tried.
              Of a table with a regression the steps are those at deviation 0: what is foretold of
              the prompt alone is not learned once more of its cluster (`router.regression`).
              Offline counts are the prior: they stay, as at most OFFLINE_ANSWERS answers.
output        per cluster: how long answers are, from their tokens and how many of them ended by
              themselves, with the same half-life.
step ratio    per method: how much slower its steps are than the measured grid, alone and in full
              batches, a factor of the machine that all methods share times one of the method
              (`router.step_ratio`). A step that several methods share says something of each
              (`router.pace`). Observations
              weigh half after OWN_HALF_LIFE more of the same method, and half after
              UNTRIED_HALF_LIVES x `half_life` more of any: a method that nobody is sent to any
              more drifts back to its measured speed and is tried again.
prefill ratio per method, likewise: how much slower its prefills are than the measured line.
cached share  per method: which part of its prompts' tokens it finds in the prefix cache, with a
              half-life of `half_life` answers of the method (`router.cached`).
favourites    a cluster's favourite changes when another is predicted to be faster by more than
              `hysteresis`, with a probability of at least `confidence`, and both have
              MIN_EVIDENCE_ANSWERS behind their acceptance; and back to the fit's, without a margin,
              where that is predicted to be as fast on as much evidence.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Self

import numpy as np

from router import belief, pace, predict
from router.cached import CachedShare
from router.evidence import acceptance_evidence, learns_acceptance
from router.ratio import Ratio
from router.step_ratio import StepRatio
from router.table import RoutingTableError, kept
from schemas import Observation, RouterConfig, RoutingTable, by_band, temperature_band

REMEMBERED_IDS = 4096
"""So many observation ids are kept to count each observation once."""


class Learner:
    """Owns the live side of one routing table; not thread-safe, one owner feeds it."""

    def __init__(self, table: RoutingTable, config: RouterConfig) -> None:
        self._table = table
        self._fitted = table.assignment
        self._config = config
        self._tokens = table.live_tokens.copy()
        self._steps = table.live_steps.copy()
        self._output = table.live_output.copy()
        self._answers = table.live_answers.copy()
        m, half_life = len(table.methods), config.half_life
        self._step_ratio = StepRatio(m, half_life, np.log(table.live_batch_ratio))
        self._prefill_ratio = Ratio(m, ("log_prefill_ratio", "prefill_ratio_weight"), half_life)
        self._cached = CachedShare(m, half_life)
        self._by_method = (self._step_ratio, self._prefill_ratio, self._cached)
        self._seen: OrderedDict[str, None] = OrderedDict()

    @property
    def table(self) -> RoutingTable:
        """The present version; a new object for every version."""
        return self._table

    def counted(self, observation: Observation) -> bool:
        """Whether it was learned from before, as far back as ids are kept."""
        return observation.observation_id in self._seen

    def observe(self, observations: Iterable[Observation]) -> bool:
        """Count each observation once; True when that made a new version of the table.

        Ignored: ids seen before, other fits, methods the table does not have, failed and
        cancelled answers.
        """
        learned = [o for o in observations if self._accept(o)]
        for observation in learned:
            self._learn(observation)
        if learned:
            self._publish()
        return bool(learned)

    def _accept(self, observation: Observation) -> bool:
        stats = observation.stats
        identity = observation.observation_id
        usable = (
            observation.fit_id == self._table.fit_id
            and stats.method in self._table.methods
            and stats.finish_reason in ("stop", "length")
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
        m = self._table.methods.index(stats.method)
        if observation.cluster >= 0:
            self._learn_output(observation)
            # The second choice of a prompt finds what the first one has read.
            if observation.choices == 1:
                self._cached.observe(m, stats.cached_prompt_tokens, stats.prompt_tokens)
        self._learn_ratios(observation, m)
        # The prefill emits the first token, outside of what is called a decode step here.
        tokens, steps = stats.output_tokens - 1, stats.target_steps - 1
        if tokens < 1 or steps < 1:
            return
        lossless = self._table.lossless.get(stats.method, False)
        if observation.cluster >= 0 and learns_acceptance(stats.looping, lossless):
            k, band = observation.cluster, temperature_band(stats.temperature)
            evidence = acceptance_evidence(
                stats.output_tokens,
                stats.target_steps,
                self._table.objective,
                float(self._table.output_tokens[k]),
                belief.deviation(self._table, k, m, band, observation.foretold),
            )
            added = [part / observation.choices for part in evidence]
            forget = 0.5 ** (added[0] / belief.ANSWER_TOKENS / self._config.half_life)
            self._tokens[k, :, band] *= forget
            self._steps[k, :, band] *= forget
            self._tokens[k, m, band] += added[0]
            self._steps[k, m, band] += added[1]

    def _learn_output(self, observation: Observation) -> None:
        """An answer that was cut off shows its tokens and no end: with an end as likely after every
        token, the mean length is that of all tokens over that of ends."""
        stats, k, share = observation.stats, observation.cluster, 1.0 / observation.choices
        forget = 0.5 ** (share / self._config.half_life)
        shown = np.asarray([stats.output_tokens, stats.finish_reason == "stop"])
        self._output[k] = forget * self._output[k] + share * shown
        self._answers[k] = forget * self._answers[k] + share

    def _learn_ratios(self, observation: Observation, m: int) -> None:
        stats, share = observation.stats, 1.0 / observation.choices
        steps = pace.of_steps(self._table, stats)
        if steps is not None:
            parts = {method: (share * of, part) for method, (of, part) in steps.parts.items()}
            now = np.log(predict.ends(self._table))
            self._step_ratio.observe(now, parts, steps.beyond, stats.mean_batch)
        factor = pace.prefill_factor(self._table, m, stats)
        if factor is not None:
            self._prefill_ratio.observe(m, factor, share)

    def _publish(self) -> None:
        ratio, batch_ratio = self._step_ratio.values()
        table = self._table.model_copy(
            update={
                "live_tokens": self._tokens.copy(),
                "live_steps": self._steps.copy(),
                "live_output": self._output.copy(),
                "live_answers": self._answers.copy(),
                "live_step_ratio": ratio,
                "live_batch_ratio": batch_ratio,
                "live_step_weight": self._step_ratio.weight,
                "live_prefill_ratio": self._prefill_ratio.values(),
                "live_cached_share": self._cached.values(),
                "version": self._table.version + 1,
            }
        )
        self._table = table.model_copy(update={"assignment": self._favourites(table)})

    def _favourites(self, table: RoutingTable) -> tuple[tuple[str, ...], ...]:
        # [k][t][m]: single values are asked for, which lists are quicker to give
        seconds, answers, errors = (
            np.moveaxis(cells, 2, 1).tolist()
            for cells in (
                predict.typical_seconds(table),
                belief.answers(table),
                belief.log_error(table),
            )
        )

        def of(k: int, band: int, name: str) -> str:
            current, fitted = map(table.methods.index, (name, self._fitted[k][band]))
            # What took its place may have looked faster than it is.
            known = answers[k][band][fitted] >= predict.MIN_EVIDENCE_ANSWERS
            if known and seconds[k][band][fitted] <= seconds[k][band][current]:
                current = fitted
            winner = predict.favourite(
                seconds[k][band],
                answers[k][band],
                errors[k][band],
                current,
                self._config.hysteresis,
                self._config.confidence,
                range(len(table.methods)),
            )
            return table.methods[winner]

        return tuple(
            tuple(of(k, band, name) for band, name in enumerate(row))
            for k, row in enumerate(table.assignment)
        )

    def state(self) -> dict[str, Any]:
        """What must survive a restart, as JSON values; `restore` reads it."""
        by_method = {name: sums for one in self._by_method for name, sums in one.state().items()}
        return by_method | {
            "fit_id": self._table.fit_id,
            "version": self._table.version,
            "methods": list(self._table.methods),
            "assignment": [list(row) for row in self._table.assignment],
            "live_tokens": self._tokens.tolist(),
            "live_steps": self._steps.tolist(),
            "live_output": self._output.tolist(),
            "live_answers": self._answers.tolist(),
            "seen": list(self._seen),
        }

    @classmethod
    def restore(cls, table: RoutingTable, config: RouterConfig, state: dict[str, Any]) -> Self:
        """A learner that goes on where `state` stopped; methods no longer served are dropped.

        Raises RoutingTableError when the state belongs to another fit or is not a state.
        """
        try:
            if state["fit_id"] != table.fit_id:
                raise RoutingTableError(
                    f"the saved state belongs to fit {state['fit_id']}, the routing table to "
                    f"{table.fit_id}; start it anew"
                )
            learner = cls(table, config)
            version = int(state["version"])
            learner._output[:] = np.asarray(state["live_output"])
            learner._answers[:] = np.asarray(state.get("live_answers", learner._output[:, 1]))
            old = {name: index for index, name in enumerate(state["methods"])}
            places = {m: old[name] for m, name in enumerate(table.methods) if name in old}
            here, there = list(places), list(places.values())
            learner._tokens[:, here] = np.asarray(state["live_tokens"])[:, there]
            learner._steps[:, here] = np.asarray(state["live_steps"])[:, there]
            for one in learner._by_method:
                one.restore(state, places)
            saved = by_band(state["assignment"])
            favourites = kept(saved, table.methods, table.assignment)
            learner._seen = OrderedDict.fromkeys(str(i) for i in state["seen"])
        except (KeyError, TypeError, IndexError) as error:
            raise RoutingTableError(f"the saved state is not readable: {error!r}") from error
        learner._table = table.model_copy(update={"version": version, "assignment": favourites})
        learner._publish()
        return learner
