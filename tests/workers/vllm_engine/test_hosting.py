"""Whose drafts a batch's rows get. Drafters and vLLM's runner are stand-ins; real ones are in
test_shared_engine.py and test_vllm_adaptive.py."""

from types import SimpleNamespace
from typing import Any

import pytest

from workers.drafting.failures import IN_A_ROW
from workers.vllm_engine.drafting.adaptive import Choice
from workers.vllm_engine.drafting.portfolio import Drafting, Learned, Options, Portfolio

pytestmark = pytest.mark.vllm

METHODS = ("vllm_eagle3", "vllm_adaptive", "vllm_adaptive", None)


@pytest.fixture
def drafters(monkeypatch):
    """EAGLE-3, with KV of its own, and Medusa, each of which drafts its own token; and what they
    were asked for."""
    from workers.vllm_engine.drafting import attempts, hosting
    from workers.vllm_engine.drafting.autoregressive import AutoregressiveDrafter

    asked: dict[str, Any] = {}

    class Medusa:
        def propose(self, _step, rows, tokens):
            asked["medusa"] = rows, tokens
            return {row: [7] * 4 for row in rows}

    class Eagle(AutoregressiveDrafter):
        def take(self, _step, rows):
            asked["taken"] = rows

        def propose(self, _step, rows, tokens):
            asked["eagle3"] = rows, tokens
            return {row: [8] * tokens for row in rows}

        def full(self, _step):
            return [1]

        def keep_up(self, _step, rows):
            asked["kept up"] = rows

    group = SimpleNamespace(broadcast_object=lambda choice: choice, world_size=1)
    for module in (hosting, attempts):
        monkeypatch.setattr(module, "get_tp_group", lambda: group)
    learned = [Learned(f"vllm_{name}", name, 4) for name in ("medusa", "eagle3")]
    portfolio = Portfolio(
        methods={"vllm_eagle3": Drafting("eagle3", 4), "vllm_adaptive": Drafting("adaptive", 4)},
        drafters={"medusa": {}, "eagle3": {}},
        host="eagle3",
        adaptive=Options(tuple(learned)),
    )
    runner = SimpleNamespace(
        max_model_len=64,
        input_batch=SimpleNamespace(req_ids=["0", "1", "2", "3"], num_tokens_no_spec=[9, 9, 9, 9]),
        requests={
            str(row): SimpleNamespace(
                sampling_params=SimpleNamespace(extra_args={"specadapt_method": method})
            )
            for row, method in enumerate(METHODS)
        },
    )
    hosted = hosting.Drafters(runner, portfolio, {"medusa": Medusa(), "eagle3": Eagle(None)})
    return hosted, asked


@pytest.mark.parametrize("chosen", ["medusa", "eagle3", None])
def test_a_row_gets_the_drafts_of_whom_was_chosen_for_it(drafters, chosen, monkeypatch):
    hosted, asked = drafters
    drafted = {2: 3} if chosen else {}
    choice = Choice({1: [5], 2: [5, 5]}, chosen, drafted)
    monkeypatch.setattr(hosted.adaptive, "choose", lambda *_: choice)
    drafts = hosted.propose(SimpleNamespace(), [[1], [1], [1], [1]], *[None] * 7)
    of_second = {"medusa": [7, 7, 7], "eagle3": [8, 8, 8], None: [5, 5]}[chosen]
    assert drafts == [[8] * 4, [5], of_second, []]
    assert asked["taken"] == [0, 1, 2]
    assert asked["eagle3"] == ([0, 2] if chosen == "eagle3" else [0], 4)
    assert asked.get("medusa") == (([2], 3) if chosen == "medusa" else None)
    assert asked["kept up"] == [1]


def broken(*_: Any) -> Any:
    raise RuntimeError("broken on purpose")


def proposed(hosted: Any) -> list[list[int]]:
    return hosted.propose(SimpleNamespace(finished_req_ids=()), [[1]] * 4, *[None] * 7)


def chooses(hosted: Any, choice: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(hosted.adaptive, "choose", lambda *_: choice)


@pytest.mark.parametrize("wrong", [broken, lambda *_: {9: [1]}, lambda *_: {2: [-1]}])
def test_a_drafter_that_fails_costs_its_rows_their_drafts(drafters, monkeypatch, wrong):
    """What is looked up for them is verified instead, and other drafters' rows have theirs."""
    hosted, _ = drafters
    chooses(hosted, Choice({1: [5], 2: [5, 5]}, "medusa", {2: 3}), monkeypatch)
    told = []
    monkeypatch.setattr(hosted.adaptive, "undrafted", told.append)
    monkeypatch.setattr(hosted._drafters["medusa"], "propose", wrong)
    for _ in range(IN_A_ROW + 2):
        assert proposed(hosted) == [[8] * 4, [5], [5, 5], []]
    assert told == [["2"]] * (IN_A_ROW + 2)
    assert hosted.attempts.failures.counts == {"medusa": IN_A_ROW}  # then it rests


@pytest.mark.parametrize("call", ["take", "propose", "keep_up"])
def test_a_drafter_with_kv_leaves_requests_alone_that_it_failed_at(drafters, monkeypatch, call):
    hosted, _ = drafters
    chooses(hosted, Choice({1: [5], 2: [5, 5]}, "medusa", {2: 3}), monkeypatch)
    eagle = hosted._drafters["eagle3"]
    monkeypatch.setattr(eagle, call, broken)
    drafts = proposed(hosted)
    assert drafts[1:] == [[5], [7] * 3, []]
    assert hosted.attempts.failures.counts == {"eagle3": 1}
    lost = {"take": {"0", "1", "2"}, "propose": {"0"}, "keep_up": {"1"}}
    assert eagle._lost == lost[call]


def test_a_choice_that_fails_is_none(drafters, monkeypatch):
    hosted, _ = drafters
    restarted = []
    monkeypatch.setattr(hosted.adaptive, "choose", broken)
    monkeypatch.setattr(hosted.adaptive, "restart", lambda: restarted.append(1))
    assert proposed(hosted) == [[8] * 4, [], [], []]
    assert hosted.attempts.failures.counts == {"adaptive": 1}
    assert restarted


def test_a_drafter_in_several_groups_of_the_kv_cache_is_refused():
    """It writes by one block table; another group's blocks belong to other sequences."""
    from workers.vllm_engine.drafting.hosting import host_portfolio

    cache = SimpleNamespace(
        kv_cache_groups=[
            SimpleNamespace(layer_names=["target.0", "eagle3.0"]),
            SimpleNamespace(layer_names=["target.1", "eagle3.1"]),
        ]
    )
    told = []
    proposer = SimpleNamespace(
        load_model=None,
        initialize_attn_backend=lambda *args: told.append(args),
        initialize_cudagraph_keys=None,
        dummy_run=None,
    )
    runner = SimpleNamespace(drafter=proposer, speculative_config=SimpleNamespace())
    host_portfolio(runner, Portfolio({}, {"eagle3": {}}, host="eagle3"))
    proposer._draft_attn_layer_names = {"eagle3.0", "eagle3.1"}
    with pytest.raises(RuntimeError, match=r"eagle3 cannot share an engine: .* 2 groups"):
        proposer.initialize_attn_backend(cache, [16, 16])
    proposer._draft_attn_layer_names = {"eagle3.1"}
    proposer.initialize_attn_backend(cache, [16, 16])
    assert told == [(cache, [16, 16])]


def test_drafters_without_cuda_graphs_are_named(monkeypatch):
    from vllm.config import CUDAGraphMode

    from workers.vllm_engine.drafting import hosting

    def drafter(kind: Any, mode: Any = None, model: Any = None) -> Any:
        made = object.__new__(kind)
        made.proposer = SimpleNamespace(model=model)
        if mode is not None:
            made.proposer.cudagraph_dispatcher = SimpleNamespace(cudagraph_mode=mode)
        return made

    pieces, none = CUDAGraphMode.PIECEWISE, CUDAGraphMode.NONE
    wrapped = object.__new__(hosting.BreakableCUDAGraphWrapper)
    hosted = object.__new__(hosting.Drafters)
    hosted._drafters = {
        "eagle3": drafter(hosting.AutoregressiveDrafter, pieces, wrapped),
        "eagle": drafter(hosting.AutoregressiveDrafter, pieces),
        "draft_model": drafter(hosting.AutoregressiveDrafter, none, wrapped),
        "medusa": drafter(hosting.MedusaDrafter),
        "ngram": drafter(hosting.NgramDrafter),
    }
    compilation = SimpleNamespace(cudagraph_mode=CUDAGraphMode.FULL_AND_PIECEWISE)
    hosted._runner = SimpleNamespace(compilation_config=compilation)
    assert hosted.eager == ["draft_model", "medusa"]
    monkeypatch.setattr(hosting, "is_breakable_cudagraph_enabled", lambda: True)
    assert hosted.eager == ["eagle", "draft_model", "medusa"]
    compilation.cudagraph_mode = none
    assert hosted.eager == []
