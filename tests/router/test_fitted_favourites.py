"""The fit's favourites: what takes their place by looking faster than it is gives it back."""

from refit_world import World, refitted, stream
from routing_world import observe

from router.favourites import typical_seconds
from router.learner import Learner
from schemas import RoutingTable


def test_a_favourite_that_looked_faster_than_it_is_gives_way_again(table: RoutingTable) -> None:
    """Of two methods that are as fast in this cluster one had a few quick answers at first."""
    draft, ngram = table.methods.index("draft"), table.methods.index("ngram")
    steps = table.acceptance_steps.copy()
    steps[0, ngram] = table.acceptance_tokens[0, ngram] / 1.6
    near = table.model_copy(update={"acceptance_steps": steps})
    seconds = typical_seconds(near)[0, :, 0]
    assert 1.0 < seconds[ngram] / seconds[draft] < 1.05
    learner = Learner(near)

    def answers(name: str, count: int, pace: float) -> None:
        for i in range(count):
            acceptance, step = {"draft": (2.5, 0.015), "ngram": (1.6, 0.011)}[name]
            decode_steps = round(60 / acceptance)
            learner.observe(
                [
                    observe(
                        near,
                        f"{name}-{pace}-{i}",
                        name,
                        0,
                        target_steps=decode_steps + 1,
                        decode_seconds=pace * step * decode_steps,
                    )
                ]
            )

    answers("draft", 8, 1.0)
    answers("ngram", 8, 0.6)
    assert learner.table.assignment[0][0] == "ngram"
    answers("ngram", 60, 1.0)
    assert learner.table.assignment[0][0] == "draft"


def test_a_restart_goes_on_with_the_live_favourites_and_still_knows_the_fits(table):
    learner = Learner(table)
    changed = learner.state() | {"assignment": [["ngram"] * 3, ["draft"] * 3]}
    again = Learner.restore(table, changed)
    assert again.table.assignment == table.assignment, "both are faster where the fit says so"


def test_a_refit_keeps_the_favourites_of_the_clusters_on_disk() -> None:
    """Whichever method the profile alone would choose now."""
    world = World()
    other = tuple(("naive",) * 3 for _ in world.disk.assignment)
    world.disk = world.disk.model_copy(update={"assignment": other})
    made = refitted(world, stream(world, world.disk))
    assignment = made.fit.table(world.disk).assignment
    assert assignment[:2] == other
    assert len(assignment) == 3
    assert set(assignment[2]) <= {"draft", "ngram"}
