"""Replayed answers, layer skip and lookahead: what a step emits and what it costs."""

import asyncio

import numpy as np
import pytest

from ops.cli.boundary import InputError
from ops.measure.decoding import EncodedPrompt
from ops.measure.prompts import Prompt
from ops.measure.stepping import Stepper
from ops.rules.costs import Costs, costs_of
from ops.rules.exits import Exits, figures, survival
from ops.rules.lookahead import SHAPES, decode_all
from ops.rules.recording import LEVELS, RANKS, record
from ops.rules.replay import MOST_NODES, OURS, Recorded, compare, halves, replay
from ops.rules.rules import Fixed, chain
from ops.rules.wide_tree import ROOT, WideTree
from schemas import EngineConfig, SamplingParams
from workers.methods import get_method

COSTS = Costs({1: 1.0, 2: 1.1, 16: 2.5}, 0.2, {1: 0.1, 16: 0.4}, 0.1)
TOKENS = 24


def line(*came: bool) -> WideTree:
    """A chain of which the first levels come."""
    count = len(came)
    path = [all(came[: i + 1]) for i in range(count)]
    values = [-0.1 * (i + 1) for i in range(count)]
    return WideTree(range(-1, count - 1), [0] * count, range(count), values, [0.1] * count, path)


def test_steps_begin_behind_what_was_accepted() -> None:
    """Two accepted and one more; then one more; then the last one, of which nothing is drafted."""
    trees = [line(True, True), line(True), line(True), line(False), WideTree()]
    [run] = replay([Recorded("a", "math", trees)], Fixed(lambda tree: chain(tree, 2)), COSTS)
    assert (run.tokens, run.steps, run.accepted) == (5, 3, 2)
    assert run.nodes == run.levels == 3
    steps = [COSTS.seconds((1, 1), 2), COSTS.seconds((1,), 1), COSTS.plain]
    assert run.seconds == pytest.approx(sum(steps))


def test_costs_of_a_step() -> None:
    assert COSTS.plain == pytest.approx(1.0)
    assert COSTS.seconds((1,), 1) == pytest.approx(1.1 + 0.2)
    assert COSTS.seconds((1, 16, 1), 15) == pytest.approx(2.5 + 0.2 + 0.4 + 0.1)
    assert costs_of(COSTS.figures()).seconds((1, 3), 5) == pytest.approx(COSTS.seconds((1, 3), 5))


def test_halves_have_every_domain() -> None:
    answers = [Recorded(f"{d}{i}", d, []) for i in range(4) for d in ("math", "edit")]
    seen, judged = halves(answers)
    assert {a.prompt_id for a in seen} == {"math0", "math2", "edit0", "edit2"}
    assert {a.prompt_id for a in judged} == {"math1", "math3", "edit1", "edit3"}
    with pytest.raises(InputError, match="no domain has two answers"):
        compare(answers[:2], COSTS, get_method("eagle3"), LEVELS, 0)


def test_the_first_layers_are_accepted_as_far_as_they_agree() -> None:
    agreed = np.array([True, True, False, True, True, True])
    assert survival([agreed], 1) == pytest.approx(5 / 6)
    assert survival([agreed], 2) == pytest.approx(3 / 5)
    assert survival([agreed], 3) == pytest.approx(1 / 4)
    found = figures([{1: agreed}], 2, COSTS)["1"]
    assert found["agrees"] == pytest.approx(5 / 6)
    # steps at 0 and 3 (two accepted and one more each): half of the layers and the head for each
    # of two drafts, and what two more rows cost the other half
    step = 2 * (0.5 * 0.9 + 0.1) + COSTS.seconds((), 2) - 0.5 * (COSTS.seconds((), 2) - 1.0)
    assert found["speedup"]["2"] == pytest.approx(6.0 / (2 * step))


@pytest.fixture(scope="module")
def decoded(tiny_bundle):
    """A stepper in float32, and the plain answers of two prompts."""

    async def made():
        names = ("naive", "ngram", "eagle3")
        config = EngineConfig(dtype="float32", threads=1, max_context=256)
        stepper = Stepper([get_method(name) for name in names], tiny_bundle, config)
        answers = []
        for number in range(2):
            prompt = Prompt(f"p{number}", "math", ({"role": "user", "content": "?"},))
            item = EncodedPrompt(prompt, tuple(range(10 + number, 40 + number)))
            sampling = SamplingParams(temperature=0.0, max_tokens=TOKENS, ignore_eos=True)
            plain = stepper.models.methods["naive"]
            answers.append((item, stepper.decode(plain, item.token_ids, sampling)[0]))
        return stepper, answers

    return asyncio.run(made())


def test_every_position_is_recorded_as_the_drafter_would_draft_it(decoded) -> None:
    """What was read are the favourite and the best nodes; what came is what the answer says."""
    stepper, [(item, answer), _] = decoded

    async def recorded():
        return record(stepper, stepper.models.methods["eagle3"], item, TOKENS)

    said, drafts = asyncio.run(recorded())
    trees = drafts.trees
    assert said == answer[: len(said)]
    assert len(trees) == len(said) - 1
    for left, tree in enumerate(reversed(trees)):
        assert len(tree.levels) == min(left, LEVELS)
        for depth, level in enumerate(tree.levels[1:]):
            read = {tree.parents[node] for node in level}
            assert set(tree.levels[depth][:MOST_NODES]) <= read
        assert sum(tree.parents[node] == ROOT for node in range(len(tree))) in (0, RANKS)
        path = [tree.depths[node] for node in range(len(tree)) if tree.came[node]]
        assert path == list(range(len(path)))
    rules = compare(
        [Recorded(f"{i}", "math", trees) for i in range(2)], COSTS, get_method("eagle3"), LEVELS, 0
    )["rules"]
    assert rules[OURS]["over_ours"]["ratio"] == 1.0
    assert all(found["speedup"] <= rules["known beforehand"]["speedup"] for found in rules.values())


def test_exits_and_the_last_layer(decoded, tiny_bundle) -> None:
    stepper, [(item, answer), _] = decoded
    exits = Exits(stepper.models.target.model, tiny_bundle.part("target"))
    assert exits.after == [1, 2]
    found = exits.agree(item.token_ids, answer)
    assert {len(one) for one in found.values()} == {len(answer) - 1}


def test_lookahead_gives_the_plain_answers(decoded) -> None:
    stepper, answers = decoded

    async def run():
        return decode_all(stepper, answers, COSTS, 0, lambda: None)

    found = asyncio.run(run())
    assert set(found) == {*SHAPES, "ngram"}
    for name, (columns, size, guesses) in SHAPES.items():
        assert found[name]["same_answers"] == 1.0
        assert found[name]["tokens_per_step"] >= 1.0
        assert found[name]["nodes"] <= (columns + guesses) * (size - 1)
