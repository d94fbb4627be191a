"""Rows of the second runner's batch, and the check of vLLM's names that it rests on."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytestmark = pytest.mark.vllm
pytest.importorskip("vllm", reason="vLLM is not installed: make test-vllm")


@pytest.fixture(autouse=True)
def _on_the_cpu(monkeypatch):
    """Copy as vLLM's CPU worker does."""
    from vllm.utils import torch_utils

    def copy(values, device, dtype):
        return torch.as_tensor(values, dtype=dtype, device=device)

    monkeypatch.setattr(torch_utils, "async_tensor_h2d", copy)


@pytest.fixture
def batch():
    """Three requests with 2, 3 and 1 tokens, in slots 4, 0 and 2."""
    from vllm.v1.worker.gpu.input_batch import InputBatch, InputBuffers

    whole = InputBatch.make_dummy(3, 6, InputBuffers(4, 8, torch.device("cpu")))
    whole.idx_mapping_np = np.array([4, 0, 2])
    whole.idx_mapping = torch.tensor([4, 0, 2])
    whole.num_scheduled_tokens = np.array([2, 3, 1], dtype=np.int32)
    whole.query_start_loc_np = np.array([0, 2, 5, 6], dtype=np.int32)
    whole.seq_lens = torch.tensor([12, 3, 31], dtype=torch.int32)
    whole.seq_lens_cpu_upper_bound = torch.tensor([13, 3, 32], dtype=torch.int32)
    whole.input_ids = torch.tensor([10, 11, 20, 21, 22, 30], dtype=torch.int32)
    whole.positions = torch.tensor([10, 11, 0, 1, 2, 30])
    whole.is_prefilling_np = np.array([False, True, False])
    return whole


def test_the_batch_of_some_rows_has_their_tokens_alone(batch):
    from workers.vllm_engine.second_runner.batch_rows import select_rows

    some, places = select_rows(batch, [0, 2])
    assert places.tolist() == [0, 1, 5]
    assert some.req_ids == [batch.req_ids[0], batch.req_ids[2]]
    assert some.num_reqs == some.num_reqs_after_padding == 2
    assert some.num_tokens == some.num_tokens_after_padding == 3
    assert some.idx_mapping.tolist() == some.idx_mapping_np.tolist() == [4, 2]
    assert some.query_start_loc.tolist() == some.query_start_loc_np.tolist() == [0, 2, 3]
    assert some.seq_lens.tolist() == [12, 31]
    assert some.seq_lens_cpu_upper_bound.tolist() == [13, 32]
    assert some.input_ids.tolist() == [10, 11, 30]
    assert some.positions.tolist() == [10, 11, 30]
    assert not some.has_prefill
    assert select_rows(batch, [1])[0].has_prefill
    assert batch.num_reqs == 3, "vLLM's batch is as it was"


def test_suffixes_follow_the_tokens_that_the_device_has(batch):
    """The batch's last row, in slot 2, has its prompt read, then three tokens at once."""
    pytest.importorskip("arctic_inference", reason="arctic-inference is not installed")
    from workers.vllm_engine.second_runner.batch_rows import select_rows
    from workers.vllm_engine.second_runner.suffix import SuffixSpeculator

    prompt, answer = [7, 1, 2, 3, 4, 5, 7], [1, 2, 3]
    drafting = SimpleNamespace(
        num_speculative_tokens=4,
        suffix_decoding_max_tree_depth=8,
        suffix_decoding_max_spec_factor=4.0,
        suffix_decoding_min_token_prob=0.1,
        suffix_decoding_max_cached_requests=4,
    )
    model = SimpleNamespace(max_model_len=32)
    config = SimpleNamespace(speculative_config=drafting, model_config=model)
    known, total = torch.zeros((5, 32), dtype=torch.int32), torch.zeros(5, dtype=torch.int32)
    states = SimpleNamespace(
        max_num_reqs=5,
        max_model_len=32,
        num_speculative_steps=4,
        req_id_to_index={batch.req_ids[2]: 2},
        total_len=SimpleNamespace(gpu=total),
        all_token_ids=SimpleNamespace(gpu=known),
    )
    suffix = SuffixSpeculator(config, states)
    request = SimpleNamespace(
        req_id=batch.req_ids[2], prefill_token_ids=prompt, prompt_len=len(prompt)
    )
    suffix.begin(2, request)
    row, _ = select_rows(batch, [2])
    known[2, : len(prompt)], total[2] = torch.tensor(prompt), len(prompt)
    waiting = suffix.propose(row, torch.tensor([0], dtype=torch.int32))
    assert waiting.tolist() == [[7, 7, 7, 7]], "nothing is drafted before the prompt is read"
    known[2, len(prompt) : len(prompt) + 3], total[2] = torch.tensor(answer), len(prompt) + 3
    drafts = suffix.propose(row, torch.tensor([3], dtype=torch.int32))
    assert suffix.token_ids_cpu[2, : suffix.num_tokens_no_spec[2]].tolist() == prompt + answer
    assert drafts.tolist() == [[4, 5, 7, 1]], "what followed them in the prompt"


@pytest.fixture
def runner():
    """A runner that has loaded nothing, by its attributes, and its configuration."""
    from workers.vllm_engine.second_runner.requirements import RUNNER, STATES
    from workers.vllm_engine.second_runner.scheduler import SharedScheduler

    parallel = SimpleNamespace(
        pipeline_parallel_size=1,
        data_parallel_size=1,
        decode_context_parallel_size=1,
        prefill_context_parallel_size=1,
    )
    drafting = SimpleNamespace(enable_adaptive_verification=False, draft_sample_method="greedy")
    scheduling = SimpleNamespace(get_scheduler_cls=lambda: SharedScheduler)
    config = SimpleNamespace(
        parallel_config=parallel,
        scheduler_config=scheduling,
        speculative_config=drafting,
        watermark_config=None,
    )
    states = SimpleNamespace(**dict.fromkeys(STATES))
    return SimpleNamespace(**dict.fromkeys(RUNNER) | {"req_states": states, "vllm_config": config})


def test_the_installed_vllm_has_all_names(runner):
    from workers.vllm_engine.second_runner.requirements import refuse_misfit

    refuse_misfit(runner)


def test_methods_of_the_first_runner_are_refused(runner):
    from vllm.v1.core.sched.scheduler import Scheduler

    from workers.vllm_engine.second_runner.requirements import refuse_misfit

    runner.vllm_config.scheduler_config.get_scheduler_cls = lambda: Scheduler
    with pytest.raises(RuntimeError, match="set VLLM_USE_V2_MODEL_RUNNER=0"):
        refuse_misfit(runner)


def test_what_has_changed_in_vllm_is_named(runner, monkeypatch):
    from vllm.v1.worker.gpu.model_runner import GPUModelRunner

    from workers.vllm_engine.second_runner import requirements

    def add_requests(self, scheduler_output, moved):
        """As a later vLLM might have it."""

    add_requests.__qualname__ = "GPUModelRunner.add_requests"
    known = {k: v for k, v in requirements.PARAMETERS.items() if k != GPUModelRunner.add_requests}
    changed = known | {add_requests: ("scheduler_output",)}
    monkeypatch.setattr(requirements, "PARAMETERS", changed)
    monkeypatch.setattr(requirements, "BATCH", (*requirements.BATCH[1:], "gone"))
    del runner.req_states.total_len
    with pytest.raises(RuntimeError) as refused:
        requirements.refuse_misfit(runner)
    for part in (
        "GPUModelRunner.add_requests takes scheduler_output, moved instead of scheduler_output",
        "InputBatch has no gone",
        "InputBatch has a new req_ids",
        "has no total_len",
    ):
        assert part in str(refused.value)


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("parallel_config", "data_parallel_size", 2),
        ("speculative_config", "enable_adaptive_verification", True),
        ("speculative_config", "draft_sample_method", "probabilistic"),
    ],
)
def test_what_the_second_runner_does_not_share_is_named(runner, part, field, value):
    from workers.vllm_engine.second_runner.requirements import refuse_misfit

    setattr(getattr(runner.vllm_config, part), field, value)
    with pytest.raises(RuntimeError, match=field):
        refuse_misfit(runner)
