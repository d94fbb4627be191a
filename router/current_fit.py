"""The active clusters: those of the table on disk, or what refits have made of them."""

import base64
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from router import favourites
from router.drift import Reference
from schemas import TEMPERATURE_BANDS, Live, RoutingTable

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Fit:
    """The active clusters as a change of the table on disk, which holds everything else.

    share [k', k]: the part of each disk cluster's evidence that each cluster has. ground [k', 3]:
    prompts unlike any in the fit, their output tokens and their prompt tokens, summed. history: one
    entry per refit, oldest first, with `from`, `fit_id`, its time, prompts, clusters added, drift.
    """

    fit_id: str
    centroids: Floats
    share: Floats
    ground: Floats
    reference: Reference | None
    history: tuple[dict[str, Any], ...] = ()

    @classmethod
    def on_disk(cls, table: RoutingTable) -> Self:
        """Return the table's own clusters."""
        k, distances = len(table.assignment), table.provenance.get("distances")
        reference = None if distances is None else Reference.read(distances)
        return cls(table.fit_id, table.centroids, np.eye(k), np.zeros((k, 3)), reference)

    @property
    def ancestors(self) -> frozenset[str]:
        """The earlier fits that this one was made from."""
        return frozenset(refit["from"] for refit in self.history)

    def table(self, disk: RoutingTable) -> RoutingTable:
        """Return the table on disk with these clusters and without live evidence."""
        if not self.history:
            return disk
        count = self.share @ disk.output_count + self.ground[:, 0]
        speedup = _harmonic(self.share, disk.speedup, disk.speedup_count)
        fresh = Live.nothing(len(count), len(disk.methods))
        by_cluster = {n: getattr(fresh, n) for n in ("tokens", "steps", "output", "answers")}
        table = disk.model_copy(
            update={
                "fit_id": self.fit_id,
                "centroids": self.centroids,
                "assignment": ((disk.default_method,) * len(TEMPERATURE_BANDS),) * len(count),
                "acceptance_tokens": np.tensordot(self.share, disk.acceptance_tokens, 1),
                "acceptance_steps": np.tensordot(self.share, disk.acceptance_steps, 1),
                "live": disk.live.model_copy(update=by_cluster),
                "output_tokens": self._mean(disk.output_tokens, disk.output_count, 1),
                "output_count": count,
                "regression_mean": self._regression_mean(disk),
                "speedup": speedup,
                "speedup_count": self.share @ disk.speedup_count,
                "provenance": self._provenance(disk),
            }
        )
        added = favourites.fastest(table)[len(disk.assignment) :]
        return table.model_copy(update={"assignment": (*disk.assignment, *added)})

    def _mean(self, values: Floats, counts: Floats, column: int) -> Floats:
        """Return means [k'] over the disk clusters' `values` and the ground's sums in `column`."""
        total = self.share @ (values * counts) + self.ground[:, column]
        count = self.share @ counts + self.ground[:, 0]
        whole = total.sum() / count.sum() if count.sum() else float(values.mean())
        return np.divide(total, count, out=np.full_like(total, whole), where=count > 0)

    def _regression_mean(self, disk: RoutingTable) -> Floats:
        """Return means [k', m] over the disk clusters whose evidence each cluster has.

        The evidence is at deviation 0 from these. A cluster without any uses all clusters.
        """
        often = np.maximum(disk.output_count, 1e-9)
        heavy = self.share * often
        heavy = np.where(heavy.any(axis=1, keepdims=True), heavy, often)
        return np.asarray(heavy @ disk.regression_mean / heavy.sum(axis=1, keepdims=True))

    def _provenance(self, disk: RoutingTable) -> dict[str, Any]:
        known = {n: v for n, v in disk.provenance.items() if n != "by_measured_speedup"}
        if "prompt_tokens" in known:
            lengths = np.asarray(known["prompt_tokens"], dtype=np.float64)
            means = self._mean(lengths, disk.output_count, 2)
            known["prompt_tokens"] = [round(float(tokens), 2) for tokens in means]
        if self.reference is not None:
            known["distances"] = self.reference.state()
        return known | {"fit_on_disk": disk.fit_id, "refits": list(self.history)}

    def state(self) -> dict[str, Any]:
        """Return JSON values for `read`."""
        packed = np.asarray(self.centroids, dtype="<f4")
        return {
            "fit_id": self.fit_id,
            "dimension": packed.shape[1],
            "centroids": base64.b64encode(packed.tobytes()).decode(),
            "share": self.share.tolist(),
            "ground": self.ground.tolist(),
            "reference": self.reference and self.reference.state(),
            "history": list(self.history),
        }

    @classmethod
    def read(cls, state: dict[str, Any], disk: RoutingTable) -> Self:
        """Return the fit of a state. Raises ValueError if it is not a state of this table."""
        try:
            floats = np.frombuffer(base64.b64decode(state["centroids"]), dtype="<f4")
            centroids = floats.reshape(-1, state["dimension"]).astype(np.float64)
            share, ground = np.asarray(state["share"]), np.asarray(state["ground"])
            reference = state["reference"]
            history = tuple(dict(refit) for refit in state["history"])
            made = cls(
                str(state["fit_id"]),
                centroids,
                share,
                ground,
                None if reference is None else Reference.read(reference),
                history,
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"the saved fit is not readable: {error!r}") from error
        k = len(centroids)
        expected = (disk.encoder.dimension, (k, len(disk.assignment)), (k, 3))
        if (centroids.shape[1], share.shape, ground.shape) != expected:
            raise ValueError("the saved fit has other clusters than the table on disk")
        return made


def _harmonic(share: Floats, values: Floats, counts: Floats) -> Floats:
    """Return harmonic means [k', m] of values [k, m] with prompt counts [k, m]; 0 without any."""
    seconds = np.divide(counts, values, out=np.zeros_like(values), where=values > 0)
    total, prompts = share @ seconds, share @ counts
    means: Floats = np.divide(prompts, total, out=np.zeros_like(total), where=total > 0)
    return means
