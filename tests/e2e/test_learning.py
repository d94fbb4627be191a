"""`bench learning`'s scenarios, shortened, on a real Ray Serve that replays a small recording."""

import asyncio
import dataclasses
import time
from collections.abc import Callable

import httpx
import numpy as np
import pytest
from replayed import replay_config
from running_service import CALL_SECONDS, START_SECONDS, Service, until

from ops.harness.own_service import OwnService
from ops.load.learning.runs import Phase, Run, run_phases
from ops.load.learning.scenarios import Prompts, busiest, new_kind
from ops.load.policies import Question, static_table
from router import cluster
from router.embed import Encoder
from router.fit.profile import Profile
from router.prompt import Features
from router.table import load_table
from schemas import AppConfig
from workers.bundle import Bundle

SAYS = "recording, slowed down 2 times"
KNOWN = ("code", "weather")
PAIRS_PER_S = 3.0
FIRST, SECOND = "draft_verify", "ngram"
"""The best method of the known prompts, and the best one while it is half as fast."""


@dataclasses.dataclass(frozen=True)
class World:
    """A replaying service, its prompts, and what its table says without load."""

    service: Service
    own: OwnService
    prompts: Prompts
    static: Callable[[Question], str]

    @property
    def known(self) -> Prompts:
        """The prompts of the kinds that the table was fitted on."""
        both = zip(self.prompts.questions, self.prompts.domains, strict=True)
        kept = [(question, domain) for question, domain in both if domain in KNOWN]
        return Prompts([q for q, _ in kept], [d for _, d in kept])

    def run(self, phases: list[Phase]) -> Run:
        coroutine = run_phases(self.own, phases, self.static, PAIRS_PER_S, 0, lambda: None)
        return asyncio.run(coroutine)

    def chat(self, question: Question, **fields: object) -> httpx.Response:
        return self.service.chat(question.text, max_tokens=25, temperature=0, **fields)

    def share(self, method: str, prompts: int = 12) -> float:
        """Of so many known prompts, the share that `method` answered."""
        asked = self.known.drawn(prompts, np.random.default_rng(0))
        answers = [self.chat(question) for question in asked]
        assert all(answer.is_success for answer in answers)
        until(lambda: self.service.routing()["feedback"]["observations_waiting"] == 0)
        return sum(a.headers["x-specadapt-method"] == method for a in answers) / prompts


def world_of(service: Service) -> World:
    config = service.config
    table = load_table(config.router.routing)
    calm = static_table(table, config.router)
    recorded = Profile.load(config.engine.replay).prompts
    vectors = Encoder(config.router.encoder).embed([p.text for p in recorded])
    labels = cluster.assign(table.centroids, vectors)
    questions = [
        Question(p.token_ids, int(c), Features(len(p.token_ids), 25), p.text)
        for p, c in zip(recorded, labels, strict=True)
    ]
    prompts = Prompts(questions, [p.domain for p in recorded])
    own = OwnService(service.config, service.url)
    return World(service, own, prompts, lambda question: calm(question, ())[0])


@pytest.fixture(scope="module")
def world(
    deploy: Callable[[AppConfig], Service],
    port: int,
    tiny_bundle: Bundle,
    tmp_path_factory: pytest.TempPathFactory,
) -> World:
    """Two replicas of the best method, one of each other; none computes. Learns quickly."""
    settings = {
        "methods": [
            {"name": name, "num_cpus": 0, "min_replicas": count, "max_replicas": count}
            for name, count in {"naive": 1, FIRST: 2, SECOND: 1}.items()
        ],
        # slow enough for the seconds of HTTP to be few beside the engine's on a busy machine
        "engine": {"replay_slowdown": 2.0},
        "router": {"half_life": 20.0, "drift_window": 40},
        "http": {"port": port},
    }
    folder = tmp_path_factory.mktemp("learning")
    return world_of(deploy(replay_config(folder, tiny_bundle, KNOWN, settings)))


@pytest.fixture(autouse=True)
def forgotten(world: World) -> None:
    """Every test begins with the table on disk."""
    world.service.forget()


def shares(run: Run, phase: str) -> dict[str, float]:
    """By method its share of the routed answers in the second half of a phase."""
    pairs = [p for p in run.pairs if p.phase == phase]
    methods = [p.routed.method for p in pairs[len(pairs) // 2 :]]
    return {m: methods.count(m) / len(methods) for m in set(methods)}


def test_a_replay_says_so_and_refuses_what_was_not_recorded(world):
    answer = world.chat(world.prompts.questions[0])
    assert answer.headers["x-specadapt-replay"] == SAYS
    assert answer.headers["x-specadapt-method"] == FIRST
    assert (
        httpx.get(f"{world.service.url}/health", timeout=CALL_SECONDS).headers["x-specadapt-replay"]
        == SAYS
    )
    refused = world.service.chat("something else", temperature=0)
    assert refused.status_code == 400
    assert "no recorded answer" in refused.json()["error"]["message"]


def test_a_method_is_made_slower_on_all_of_its_replicas(world):
    """That traffic leaves such a method is shown by test_service, with engines that compute, and
    by the scenarios below."""
    rows = Profile.load(world.service.config.engine.replay).rows
    recorded = min(row.decode_seconds for row in rows if row.method == FIRST)
    world.own.set_factor(FIRST, 5.0)
    try:
        answers = [world.chat(world.known.questions[0], model=f"tiny:{FIRST}") for _ in range(6)]
    finally:
        world.own.set_factor(FIRST, 1.0)
    took = [a.json()["usage"]["speculative"]["decode_seconds"] for a in answers]
    assert min(took) > 0.99 * 5.0 * 2.0 * recorded


@pytest.mark.slow
def test_traffic_leaves_a_method_that_is_slower_and_comes_back(world):
    assert busiest(world.known, world.static) == FIRST
    until(lambda: world.share(FIRST) > 0.7, seconds=START_SECONDS)
    world.own.set_factor(FIRST, 3.0)
    try:
        until(lambda: world.share(FIRST) < 0.4, seconds=START_SECONDS)
    finally:
        world.own.set_factor(FIRST, 1.0)
    until(lambda: world.share(FIRST) > 0.7, seconds=START_SECONDS)


@pytest.mark.slow
def test_new_kind(world):
    before = world.service.routing()
    run = world.run(new_kind(world.prompts, ["cooking"], 60, np.random.default_rng(0)))
    assert run.failures == []
    started = time.monotonic()
    now = until(
        lambda: (r := world.service.routing())["fit_id"] != before["fit_id"] and r,
        seconds=START_SECONDS,
    )
    assert len(now["assignment"]) > len(before["assignment"])
    assert SECOND in [one["greedy"] for one in now["assignment"]], (
        f"after {time.monotonic() - started:.0f} s"
    )
    assert shares(run, "new prompts").get(SECOND, 0) > 0.5
