"""What a drafter with KV of its own reads, and when. vLLM's proposer and its runner's step are
stand-ins, and a hidden state is its token's number; real ones are in test_vllm_adaptive.py."""

from collections.abc import Collection, Iterable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.vllm

BLOCK, ROOM, LONGEST, SEQUENCES = 4, 12, 64, 16


class Proposer:
    """Checks that every sequence is read once, from its beginning to its end."""

    block_size, max_num_tokens, max_model_len = BLOCK, ROOM, LONGEST
    max_batch_size = SEQUENCES
    kv_cache_gid = 1
    net_num_new_slots_per_request = 0
    pass_hidden_states_to_model = True
    eagle3_use_aux_hidden_state = False
    device, dtype = torch.device("cpu"), torch.int64
    draft_model_config = SimpleNamespace(max_model_len=LONGEST)
    vllm_config = SimpleNamespace(
        cache_config=SimpleNamespace(block_size=BLOCK),
        model_config=SimpleNamespace(uses_mrope=False),
    )

    def __init__(self) -> None:
        self.read: dict[int, int] = {}
        """By sequence (the number of its first block) the tokens it has read."""
        self.forwards: list[list[int]] = []
        self.texts: dict[int, list[int]] = {}

    def propose(self, *, num_speculative_tokens: int, **inputs: Any):
        attention = inputs["common_attn_metadata"]
        assert len(inputs["target_token_ids"]) <= self.max_num_tokens
        starts = attention.query_start_loc_cpu.tolist()
        self.forwards.append(np.diff(starts).tolist())
        for row, (start, end) in enumerate(pairwise(starts)):
            sequence = int(attention.block_table_tensor[row, 0]) // BLOCKS
            positions = inputs["target_positions"][start:end].tolist()
            first, last = self.read.get(sequence, 0), int(attention.seq_lens[row])
            assert positions == list(range(first, last))
            text = self.texts[sequence]
            assert inputs["target_token_ids"][start:end].tolist() == text[first:last]
            assert inputs["target_hidden_states"][start:end, 0].tolist() == text[first:last]
            slots = [1000 * sequence + position for position in positions]
            assert attention.slot_mapping[start:end].tolist() == slots
            assert int(inputs["next_token_ids"][row]) == text[last]
            self.read[sequence] = last
        return torch.zeros(len(starts) - 1, num_speculative_tokens, dtype=torch.int64)


BLOCKS = 250
"""KV blocks of each sequence, in order."""


def blocks(sequences: Iterable[int]) -> SimpleNamespace:
    """Return a table of a group of the KV cache."""
    table = torch.tensor([[BLOCKS * one + at for at in range(16)] for one in sequences])
    return SimpleNamespace(
        block_size=BLOCK, block_table=SimpleNamespace(gpu=table, np=table.numpy())
    )


class World:
    """Sequences that the target decodes, by number; each token is one that never came before. The
    host's KV is in the cache's first group, the drafter's in its second."""

    def __init__(self) -> None:
        from workers.vllm_engine.drafting.autoregressive import AutoregressiveDrafter

        self.proposer = Proposer()
        self.drafter = AutoregressiveDrafter(self.proposer)
        self.drafter.reserve(1)
        self.computed: dict[int, int] = {}
        self.running: set[str] = set()
        self.token = iter(range(100, 10**6))

    def step(
        self,
        steps: dict[int, tuple[int, int]],
        drafting: Collection[int],
        ended: Collection[str] = (),
    ) -> list[int]:
        """Return the rows that have drafts. steps, ended: see `decoded`. drafting: the sequences
        that draft afterwards."""
        mine = [row for row, name in enumerate(steps) if name in drafting]
        return self.drafted(self.decoded(steps, ended), range(len(steps)), mine)

    def drafted(self, step: Any, rows: Collection[int], drafting: list[int]) -> list[int]:
        """Return the rows that have drafts, of those that the drafter follows."""
        self.drafter.take(step, rows)
        drafts = self.drafter.propose(step, drafting, 2) if drafting else None
        if behind := self.drafter.behind(step, rows):
            self.drafter.keep_up(step, behind)
        return list(drafts.rows) if drafts else []

    def decoded(self, steps: dict[int, tuple[int, int]], ended: Collection[str] = ()) -> Any:
        """Return a step. steps: by sequence the tokens that the target reads and how many of the
        last it rejects."""
        from workers.vllm_engine.drafting.step import Step

        states, sampled, starts, reads = [], [], [0], []
        for sequence, (read, rejected) in steps.items():
            text = self.proposer.texts.setdefault(sequence, [])
            done = self.computed.get(sequence, 0)
            kept = done + read - rejected
            text += [next(self.token) for _ in range(kept + 1 - len(text))]
            states += [*text[done:kept], *[-1] * rejected]
            sampled.append(text[kept - (read - rejected) + 1 : kept + 1])
            starts.append(len(states))
            reads.append(range(done, kept))
            self.computed[sequence] = kept
        names = list(steps)
        known = np.zeros((len(names), LONGEST + 1), dtype=np.int32)
        for row, name in enumerate(names):
            known[row, : self.computed[name] + 1] = self.proposer.texts[name][
                : self.computed[name] + 1
            ]
        self.running |= set(map(str, names))
        step: Any = SimpleNamespace(
            runner=SimpleNamespace(
                requests=self.running,
                query_start_loc=SimpleNamespace(np=np.array(starts, dtype=np.int32)),
                input_batch=SimpleNamespace(
                    req_ids=[str(name) for name in names],
                    token_ids_cpu=known,
                    block_table=[blocks([-1] * len(names)), blocks(names)],
                ),
            ),
            scheduled=SimpleNamespace(finished_req_ids=ended),
            gone=lambda known: Step.gone(step, known),
            sampled=sampled,
            read=lambda row: reads[row],
            hidden_states=torch.tensor(states)[:, None],
            aux_hidden_states=[torch.tensor(states)[:, None]] * 3,
            sampling_metadata=None,
            request=lambda row: str(names[row]),
            length=lambda row: self.computed[names[row]] + 1,
        )
        return step


def test_a_full_block_is_read_at_once():
    """Another sequence may be given it by the prefix cache."""
    world = World()
    for read, forwards in ((3, []), (1, [[4]]), (3, [[4]]), (2, [[4], [5]])):
        world.step({1: (read, 0)}, set())
        assert world.proposer.forwards == forwards


def test_what_was_kept_of_a_preempted_sequence_is_dropped():
    world = World()
    world.step({1: (3, 0)}, set())
    world.computed[1] = 0
    world.step({1: (3, 0)}, {1})
    assert world.proposer.forwards == [[3]]


@pytest.mark.parametrize("told", [True, False])
def test_an_ended_sequence_is_forgotten(told):
    """If the last one ends, the runner asks for no drafts, and the end is not told."""
    world = World()
    world.step({1: (3, 0)}, set())
    world.running.clear()
    world.step({2: (1, 0)}, set(), ended={"1"} if told else set())
    assert world.drafter.unread("1") == 0
    assert world.drafter.unread("2") == 1


@given(
    st.lists(
        st.dictionaries(
            st.integers(1, 5),
            st.tuples(st.integers(1, 3), st.integers(0, 2), st.booleans()),
            min_size=1,
        ),
        max_size=12,
    ),
    st.sampled_from([BLOCK // 2, ROOM]),
)
def test_every_token_is_read_once_whoever_drafts_when(steps, room):
    """The stand-in proposer checks it; here, that nobody is left out or kept waiting too long."""
    world = World()
    world.proposer.max_num_tokens = room
    for step in steps:
        drafting = {sequence for sequence, (_, _, drafts) in step.items() if drafts}
        reading = {
            sequence: (min(read, room), min(rejected, read - 1, room - 1))
            for sequence, (read, rejected, _) in step.items()
        }
        drafts = world.step(reading, drafting)
        assert set(drafts) == {row for row, sequence in enumerate(step) if sequence in drafting}
        for sequence, computed in world.computed.items():
            read = world.proposer.read.get(sequence, 0)
            assert computed // BLOCK == read // BLOCK
            assert world.drafter.unread(str(sequence)) == computed - read


def test_what_waits_is_kept_in_memory_that_was_reserved():
    """Less than a block of each sequence, however long its prompt was."""
    world = World()
    reserved = world.drafter._states
    assert reserved.shape == (SEQUENCES * BLOCK, 1)
    for read in (11, 1, 1, 5):
        world.step(dict.fromkeys(range(1, SEQUENCES + 1), (read, 0)), drafting=())
    assert world.drafter._states is reserved
    world.step(dict.fromkeys(range(1, SEQUENCES + 1), (1, 0)), drafting=range(9))


def test_a_sequence_for_which_there_is_no_place_gets_no_drafts():
    """vLLM runs no more than max_num_seqs; preempted ones may keep their places."""
    world = World()
    drafted = world.step(dict.fromkeys(range(SEQUENCES + 2), (3, 0)), range(SEQUENCES + 2))
    assert drafted == list(range(SEQUENCES))
    world.running -= {"0", "1"}
    assert world.step({20: (3, 0)}, drafting={20}, ended={"0", "1"}) == [0]


def test_what_a_step_has_read_is_told_without_rejected_tokens():
    """Row 0 has its last token and 4 drafted ones, row 3 a part of a prompt."""
    from workers.vllm_engine.drafting.step import Step

    scheduled = {"0": 5, "1": 1, "2": 3, "3": 6}
    runner: Any = SimpleNamespace(
        input_batch=SimpleNamespace(req_ids=list(scheduled)),
        requests={name: SimpleNamespace(num_computed_tokens=10) for name in scheduled},
    )
    step = Step(
        *(runner, SimpleNamespace(num_scheduled_tokens=scheduled)),
        *([[7, 8], [9], [1, 2, 3], []], None, None, None, None),
        SimpleNamespace(num_draft_tokens=[4, 0, 2, 0]),
    )
    read = [step.read(row) for row in range(4)]
    assert read == [range(10, 12), range(10, 11), range(10, 13), range(10, 16)]


def test_a_lost_request_is_left_alone_until_it_has_ended():
    world = World()
    world.step({1: (3, 0), 2: (3, 0)}, drafting=())
    world.drafter.lose(["1"])
    for _ in range(6):
        world.step({1: (1, 0), 2: (1, 0)}, drafting={1, 2})
    assert set(world.proposer.read) == {2}
    assert world.drafter.unread("1") == 0
    world.running.discard("1")
    world.step({2: (1, 0)}, drafting={2}, ended=["1"])
    assert not world.drafter._lost


def operators(sequences: int, drafting: bool, **proposer: Any) -> int:
    """Return how many torch operators a step launches, besides those of vLLM's proposer."""
    world = World()
    vars(world.proposer).update(proposer, max_num_tokens=400)
    world.proposer.propose = lambda **_: torch.zeros(sequences, 2)
    if proposer.get("eagle3_use_aux_hidden_state"):
        world.drafter.reserve(3)
    if not proposer.get("pass_hidden_states_to_model", True):
        world.drafter._states = None
    rows = range(sequences)
    world.step(dict.fromkeys(rows, (2, 0)), drafting=())
    step = world.decoded(dict.fromkeys(rows, (1, 0)))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        world.drafted(step, rows, list(rows) if drafting else [])
    return sum(one.cpu_parent is None and "aten::" in one.name for one in profile.events())


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("drafting", [False, True])
def test_a_steps_operators_are_as_many_for_any_number_of_rows(layers, drafting):
    aux = layers > 1
    few, many = (
        operators(rows, drafting, eagle3_use_aux_hidden_state=aux) for rows in (2, SEQUENCES)
    )
    assert few == many
    assert 0 < few <= (40 if drafting else 12)


def test_a_drafter_without_requests_or_hidden_states_launches_nothing_while_it_rests():
    assert operators(0, drafting=False) == 0
    assert operators(4, drafting=False, pass_hidden_states_to_model=False) == 0
