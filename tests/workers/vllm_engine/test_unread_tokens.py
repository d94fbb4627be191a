"""What a drafter with KV of its own reads, and when. vLLM's proposer and its runner's step are
stand-ins, and a hidden state is its token's number; real ones are in test_vllm_adaptive.py."""

from collections.abc import Collection
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.vllm

BLOCK, ROOM, LONGEST = 4, 12, 64


class Proposer:
    """Checks that every sequence is read once, from its beginning to its end."""

    block_size, max_num_tokens, max_model_len = BLOCK, ROOM, LONGEST
    kv_cache_gid = 1
    net_num_new_slots_per_request = 0
    eagle3_use_aux_hidden_state = False
    device = torch.device("cpu")
    draft_model_config = SimpleNamespace(max_model_len=LONGEST)

    def __init__(self) -> None:
        self.read: dict[int, int] = {}
        """By sequence (the number of its first block) the tokens it has read."""
        self.forwards: list[list[int]] = []
        self.texts: dict[int, list[int]] = {}

    def propose(self, *, num_speculative_tokens: int, **inputs: Any):
        attention = inputs["common_attn_metadata"]
        assert len(inputs["target_token_ids"]) <= ROOM
        starts = attention.query_start_loc_cpu.tolist()
        self.forwards.append(np.diff(starts).tolist())
        for row, (start, end) in enumerate(pairwise(starts)):
            sequence = int(attention.block_table_tensor[row, 0])
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


def blocks(first: list[int], slots: list[int]) -> SimpleNamespace:
    """Return a table of a group of the KV cache: each row's first block, each token's slot."""
    return SimpleNamespace(
        block_table=SimpleNamespace(gpu=torch.tensor(first)[:, None]),
        slot_mapping=SimpleNamespace(gpu=torch.tensor(slots)),
    )


class World:
    """Sequences that the target decodes, by number; each token is one that never came before. The
    host's KV is in the cache's first group, the drafter's in its second."""

    def __init__(self) -> None:
        from workers.vllm_engine.drafting.autoregressive import AutoregressiveDrafter

        self.proposer = Proposer()
        self.drafter = AutoregressiveDrafter(self.proposer)
        self.computed: dict[int, int] = {}
        self.running: set[str] = set()
        self.token = iter(range(100, 10**6))

    def step(
        self,
        steps: dict[int, tuple[int, int]],
        drafting: Collection[int],
        ended: Collection[str] = (),
    ):
        """By sequence the tokens that the target reads and how many of the last it rejects; who
        drafts afterwards."""
        from workers.vllm_engine.drafting.step import Step

        ids, positions, slots, sampled, starts = [], [], [], [], [0]
        for sequence, (read, rejected) in steps.items():
            text = self.proposer.texts.setdefault(sequence, [])
            done = self.computed.get(sequence, 0)
            kept = done + read - rejected
            text += [next(self.token) for _ in range(kept + 1 - len(text))]
            ids += [*text[done:kept], *[-1] * rejected]
            positions += range(done, done + read)
            slots += [1000 * sequence + at for at in range(done, done + read)]
            sampled.append(text[kept - (read - rejected) + 1 : kept + 1])
            starts.append(len(ids))
            self.computed[sequence] = kept
        names, ends = list(steps), [self.computed[s] + r for s, (_, r) in steps.items()]
        begin = torch.tensor(starts, dtype=torch.int32)
        self.running |= set(map(str, names))
        step: Any = SimpleNamespace(
            runner=SimpleNamespace(
                requests=self.running,
                input_batch=SimpleNamespace(
                    req_ids=[str(name) for name in names],
                    block_table=[
                        blocks([-1] * len(names), [-1] * len(slots)),
                        blocks(names, slots),
                    ],
                ),
                input_ids=SimpleNamespace(gpu=torch.tensor(ids)),
                _get_positions=lambda chosen: torch.tensor(positions)[chosen],
            ),
            scheduled=SimpleNamespace(finished_req_ids=ended),
            gone=lambda known: Step.gone(step, known),
            sampled=sampled,
            drafted=lambda: [read - 1 for read, _ in steps.values()],
            hidden_states=torch.tensor(ids)[:, None],
            sampling_metadata=None,
            request=lambda row: str(names[row]),
            length=lambda row: self.computed[names[row]] + 1,
            next_token=lambda row: sampled[row][-1],
            attention=SimpleNamespace(
                query_start_loc=begin,
                query_start_loc_cpu=begin,
                seq_lens_cpu_upper_bound=torch.tensor(ends, dtype=torch.int32),
            ),
        )
        rows = list(range(len(names)))
        self.drafter.take(step, rows)
        mine = [row for row in rows if names[row] in drafting]
        drafts = self.drafter.propose(step, mine, 2)
        self.drafter.keep_up(step, self.drafter.full(step))
        return drafts


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
    )
)
def test_every_token_is_read_once_whoever_drafts_when(steps):
    """The stand-in proposer checks it; here, that nobody is left out or kept waiting too long."""
    world = World()
    for step in steps:
        drafting = {sequence for sequence, (_, _, drafts) in step.items() if drafts}
        reading = {s: (read, min(rejected, read - 1)) for s, (read, rejected, _) in step.items()}
        drafts = world.step(reading, drafting)
        assert set(drafts) == {row for row, sequence in enumerate(step) if sequence in drafting}
        for sequence, computed in world.computed.items():
            read = world.proposer.read.get(sequence, 0)
            assert computed // BLOCK == read // BLOCK
            assert world.drafter.unread(str(sequence)) == computed - read


def test_what_is_kept_of_a_token_is_that_token():
    """A view would keep what the whole step read: of a long prompt beside it 200 MB."""
    world = World()
    world.step({1: (8, 0), 2: (1, 0), 3: (2, 1)}, drafting=())
    world.step({1: (1, 0), 2: (1, 0), 3: (1, 0)}, drafting=())
    for kept in world.drafter._unread.values():
        for tokens in kept:
            for tensor in (tokens.ids, tokens.positions, tokens.hidden_states, tokens.slots):
                assert tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()


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
