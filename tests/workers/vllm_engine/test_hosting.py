"""Whose drafts a batch's rows get. Drafters and vLLM's runner are stand-ins; real ones are in
test_shared_engine.py and test_vllm_adaptive.py."""

from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from workers.drafting.failures import IN_A_ROW, RESTS
from workers.vllm_engine.drafting.adaptive import Choice
from workers.vllm_engine.drafting.portfolio import Drafting, Learned, Options, Portfolio

pytestmark = pytest.mark.vllm


class OnDevice(torch.Tensor):
    """A tensor that only `copy_` brings to the host; `copies` has its arguments."""

    copies: ClassVar[list[dict[str, Any]]] = []

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        name = function.__name__
        assert name not in ("tolist", "item", "cpu", "numpy", "to", "__bool__", "__int__"), name
        if name == "copy_" and not isinstance(args[0], cls):
            cls.copies.append(kwargs)
        return super().__torch_function__(function, types, args, kwargs or {})


METHODS = ("vllm_eagle3", "vllm_adaptive", "vllm_adaptive", None)


@pytest.fixture
def drafters(monkeypatch):
    """EAGLE-3, with KV of its own, and Medusa, each of which drafts its own token; and what they
    were asked for."""
    from workers.vllm_engine.drafting import attempts, hosting
    from workers.vllm_engine.drafting.autoregressive import AutoregressiveDrafter
    from workers.vllm_engine.drafting.drafts import Drafts

    asked: dict[str, Any] = {}

    def of(token: int, rows: list[int], tokens: int) -> Drafts:
        return Drafts(rows, torch.full((len(rows), tokens), token).as_subclass(OnDevice))

    class Medusa:
        def propose(self, _step, rows, tokens):
            asked["medusa"] = rows, tokens
            return of(7, rows, tokens)

    class Eagle(AutoregressiveDrafter):
        def take(self, _step, rows):
            asked["taken"] = rows

        def propose(self, _step, rows, tokens):
            asked["eagle3"] = rows, tokens
            return of(8, rows, tokens)

        def behind(self, _step, _rows):
            return [1]

        def keep_up(self, _step, rows):
            asked["kept up"] = rows

    group = SimpleNamespace(broadcast_object=lambda choice: choice, world_size=1, rank_in_group=0)
    for module in (hosting, attempts):
        monkeypatch.setattr(module, "get_tp_group", lambda: group)
    learned = [Learned(f"vllm_{name}", name, 4) for name in ("medusa", "eagle3")]
    portfolio = Portfolio(
        methods={"vllm_eagle3": Drafting("eagle3", 4), "vllm_adaptive": Drafting("adaptive", 4)},
        drafters={"medusa": {}, "eagle3": {}},
        host="eagle3",
        adaptive=Options(tuple(learned)),
    )
    told: list[str] = []
    runner = SimpleNamespace(
        device=torch.device("cpu"),
        max_model_len=64,
        draft_token_ids_cpu=torch.full((4, 4), -1),
        draft_token_ids_event=SimpleNamespace(
            record=lambda: told.append("recorded"), synchronize=lambda: told.append("waited")
        ),
        told=told,
        input_batch=SimpleNamespace(req_ids=["0", "1", "2", "3"], num_tokens_no_spec=[9, 9, 9, 9]),
        requests={
            str(row): SimpleNamespace(
                sampling_params=SimpleNamespace(extra_args={"specadapt_method": method})
            )
            for row, method in enumerate(METHODS)
        },
    )
    eagle = Eagle(SimpleNamespace(max_batch_size=4, device=runner.device))
    hosted = hosting.Drafters(runner, portfolio, {"medusa": Medusa(), "eagle3": eagle})
    return hosted, asked


@pytest.mark.parametrize("chosen", ["medusa", "eagle3", None])
def test_a_row_gets_the_drafts_of_whom_was_chosen_for_it(drafters, chosen, monkeypatch):
    hosted, asked = drafters
    drafted = {2: 3} if chosen else {}
    choice = Choice({1: [5], 2: [5, 5]}, chosen, drafted)
    monkeypatch.setattr(hosted.adaptive, "choose", lambda *_: choice)
    drafts = proposed(hosted)
    of_second = {"medusa": [7, 7, 7], "eagle3": [8, 8, 8], None: [5, 5]}[chosen]
    assert drafts == [[8] * 4, [5], of_second, []]
    assert asked["taken"] == [0, 1, 2]
    assert asked["eagle3"] == ([0, 2] if chosen == "eagle3" else [0], 4)
    assert asked.get("medusa") == (([2], 3) if chosen == "medusa" else None)
    assert asked["kept up"] == [1]


def broken(*_: Any) -> Any:
    raise RuntimeError("broken on purpose")


def proposed(hosted: Any) -> list[list[int]]:
    drafts = hosted.propose(SimpleNamespace(finished_req_ids=()), [[1]] * 4, *[None] * 7)
    hosted.read()
    return drafts


def chooses(hosted: Any, choice: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(hosted.adaptive, "choose", lambda *_: choice)


def no_token(_step: Any, rows: list[int], _tokens: int) -> Any:
    from workers.vllm_engine.drafting.drafts import Drafts

    return Drafts(rows, torch.full((len(rows), 1), -1).as_subclass(OnDevice))


@pytest.mark.parametrize("wrong", [broken, no_token])
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


def test_all_drafts_reach_the_host_in_one_copy_for_which_no_step_waits(drafters, monkeypatch):
    hosted, _ = drafters
    chooses(hosted, Choice({1: [5]}, "medusa", {2: 3}), monkeypatch)
    OnDevice.copies.clear()
    drafts = hosted.propose(SimpleNamespace(finished_req_ids=()), [[1]] * 4, *[None] * 7)
    assert OnDevice.copies == [{"non_blocking": True}]
    assert hosted._runner.told == ["recorded"]
    hosted.read()
    assert drafts == [[8] * 4, [5], [7] * 3, []]
    assert hosted._runner.told == ["recorded", "waited"]
    hosted.read()
    assert hosted._runner.told == ["recorded", "waited"]


def test_processes_exchange_nothing_where_no_method_chooses(drafters, monkeypatch):
    from workers.vllm_engine.drafting import hosting

    hosted, _ = drafters
    alone = hosting.Portfolio({"vllm_eagle3": Drafting("eagle3", 4)}, {"eagle3": {}}, "eagle3")
    monkeypatch.setattr(hosting.get_tp_group(), "broadcast_object", broken)
    eagle = {"eagle3": hosted._drafters["eagle3"]}
    assert proposed(hosting.Drafters(hosted._runner, alone, eagle)) == [[8] * 4, [], [], []]


def test_a_drafter_for_which_there_is_no_memory_leaves_the_others_alone(
    drafters, monkeypatch, caplog
):
    hosted, asked = drafters
    chooses(hosted, Choice({1: [5]}, "medusa", {2: 3}), monkeypatch)
    widths = []

    def no_memory(width: int) -> None:
        widths.append(width)
        raise torch.OutOfMemoryError("out of memory: tried to allocate 2 GiB")

    eagle = hosted._drafters["eagle3"]
    monkeypatch.setattr(eagle, "reserve", no_memory)
    eagle.proposer.eagle3_use_aux_hidden_state = True
    hosted._runner.model_config = SimpleNamespace(get_hidden_size=lambda: 100)
    hosted._runner._get_eagle3_aux_layers_from_config = lambda: None
    target = SimpleNamespace(get_eagle3_default_aux_hidden_state_layers=lambda: (2, 5, 8))
    hosted._runner.get_model = lambda: target
    hosted.reserve()
    assert widths == [300]
    assert "drafter eagle3 is disabled: out of memory: tried to allocate 2 GiB" in caplog.text
    for _ in range(2 * RESTS):
        assert proposed(hosted) == [[], [5], [7] * 3, []]
    assert asked.keys() == {"medusa"}
    assert hosted.attempts.failures.counts == {"eagle3": 1}


def test_vllms_profile_run_sees_what_drafters_allocate(monkeypatch):
    from workers.vllm_engine.drafting import hosting, worker

    told: list[Any] = []
    proposer = SimpleNamespace(
        max_batch_size=4,
        device=torch.device("cpu"),
        **dict.fromkeys(("load_model", "initialize_attn_backend", "initialize_cudagraph_keys")),
        dummy_run=lambda tokens, **_: told.append(f"forward of {tokens}"),
    )
    runner = SimpleNamespace(drafter=proposer, speculative_config=SimpleNamespace())
    hosted = hosting.host_portfolio(runner, Portfolio({}, {"eagle3": {}}, host="eagle3"))
    [eagle] = hosted._followers.values()
    eagle._states = SimpleNamespace(shape=(64, 300), new_empty=lambda *shape: told.append(shape))
    monkeypatch.setattr(hosted, "reserve", lambda: told.append("reserved"))
    monkeypatch.setattr(
        worker.Worker, "determine_available_memory", lambda _: proposer.dummy_run(8, graphs=False)
    )
    shared = object.__new__(worker.SharedWorker)
    shared._drafters = hosted
    shared.determine_available_memory()
    assert told == ["reserved", "forward of 8", (16, 300)]


@pytest.mark.parametrize("rank", [0, 1])
def test_costs_are_timed_on_the_device_with_attention(drafters, monkeypatch, rank):
    """All processes run the forwards together; the one that chooses has their times."""
    from workers.vllm_engine.drafting import hosting

    device, runs = SimpleNamespace(now=0.0), []
    table = np.zeros((2, 6), dtype=np.int32)

    class Watch:
        def __init__(self, _device: Any) -> None:
            self.began = self.ended = 0.0

        def start(self) -> None:
            self.began = device.now

        def stop(self) -> None:
            self.ended = device.now

        def seconds(self) -> float:
            return self.ended - self.began

    def run(rows: int, **options: Any) -> Any:
        runs.append((rows, options, runner.scheduler_config.max_num_seqs, table[0].tolist()))
        device.now += rows
        return torch.zeros(rows, 1), None

    def logits(_states: Any) -> None:
        device.now += 0.5

    runner = drafters[0]._runner
    vars(runner).update(
        max_num_tokens=3,
        scheduler_config=SimpleNamespace(max_num_seqs=8),
        drafter=SimpleNamespace(dummy_run=broken),
        kv_cache_config=SimpleNamespace(num_blocks=4),
        model=SimpleNamespace(compute_logits=logits),
        _dummy_run=run,
    )
    runner.input_batch.block_table = SimpleNamespace(
        block_tables=[SimpleNamespace(block_table=SimpleNamespace(np=table))]
    )
    monkeypatch.setattr(hosting, "Stopwatch", Watch)
    monkeypatch.setattr(hosting.get_tp_group(), "rank_in_group", rank)
    hosted = hosting.Drafters(runner, drafters[0]._portfolio, {})
    hosted.measure()
    context = {"force_attention": True, "profile_seq_lens": 64}
    own_blocks = [0, 1, 2, 3, 0, 1]
    assert runs == [(n, context, 1, own_blocks) for n in (1, 2, 3) for _ in range(hosting.ROUNDS)]
    assert not table.any()
    assert runner.scheduler_config.max_num_seqs == 8
    assert (hosted.adaptive is None) == (rank == 1)
    if hosted.adaptive is not None:
        assert hosted.adaptive.costs.table(3)[1:4].tolist() == [1.5, 2.5, 3.5]


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
        max_batch_size=4,
        device=torch.device("cpu"),
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
