"""What medusa, eagle and eagle3 draft is what their papers' formulas say, node by node."""

import json
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import heads_reference
import pytest
import random_heads
import torch
from conftest_bundle import with_parts
from decoding import hugging_face, method_of
from rig import Rig
from spoiling import config, tensors, text, without
from torch import Tensor

from schemas import MethodSpec
from workers.bundle import Bundle, BundleError, load_bundle
from workers.torch_engine.interfaces import Proposal
from workers.torch_engine.models.heads.eagle import NORMS
from workers.torch_engine.tree import ROOT

VOCAB = 24
CHUNK = 24
TREES: dict[str, dict[str, Any]] = {
    "chain": {},
    "static": {"tree": {"widths": (2, 2, 1)}},
    "eagle2": {"tree": {"nodes": 9, "k": 3}},
}


@pytest.fixture(scope="module")
def bundle(two_dozen: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("heads") / "bundle"
    shutil.copytree(two_dozen.path, folder)
    target = hugging_face(two_dozen.part("target")).config
    torch.manual_seed(0)
    random_heads.save_medusa(folder / "medusa-full", target, shared=False)
    random_heads.save_eagle(folder / "eagle-own", target, own=True)
    random_heads.save_eagle3(
        folder / "eagle3-full", target, reduced=False, norm_before_residual=True
    )
    for name in NORMS:
        random_heads.save_eagle3(folder / f"eagle3-{name}", target, **{name: True})
    for part in ("eagle", "eagle-own"):
        shutil.copytree(folder / part, folder / f"{part}-listed")
        listed = json.dumps({"token_ids": list(range(1, VOCAB, 2))})
        (folder / f"{part}-listed" / "draft_vocabulary.json").write_text(listed)
    others = ("medusa-full", "eagle-own", "eagle-listed", "eagle-own-listed", "eagle3-full")
    others = (*others, *(f"eagle3-{name}" for name in NORMS))
    return with_parts(folder, **{name: name for name in others})


def spec(drafter: str, part: str, tree: str) -> MethodSpec:
    verifier = "rejection" if tree == "chain" else "one_hot"
    settings = {"drafter": {"part": part}} | TREES[tree]
    return method_of(f"{part}_{tree}".replace("-", "_"), drafter, tree, verifier, **settings)


@dataclass
class Drafted:
    """A proposal as it was when the drafter had finished it."""

    method: str
    known: list[int]
    tokens: list[int]
    parents: list[int]
    logits: list[Tensor]
    version: int

    def path(self, node: int) -> list[int]:
        """Tokens from the first level down to the node."""
        above = [] if node == ROOT else self.path(self.parents[node])
        return above if node == ROOT else [*above, self.tokens[node]]


def record(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> list[Drafted]:
    """Everything that the rig's drafters propose from now on."""
    seen: list[Drafted] = []

    def watch(propose: Callable[[Sequence[Proposal]], None]) -> Any:
        def recorded(proposals: Sequence[Proposal]) -> None:
            propose(proposals)
            for p in proposals:
                logits = [row.whole()[0] for row in p.logits if row is not None]
                name, known = p.sequence.method, list(p.sequence.tokens)
                (version,) = p.sequence.head_versions.values()
                drafted = Drafted(name, known, list(p.tokens), list(p.parents), logits, version)
                seen.append(drafted)

        return recorded

    for drafter in rig.scheduler._rows._drafters:
        monkeypatch.setattr(drafter, "propose", watch(drafter.propose))
    return seen


@pytest.mark.parametrize(
    ("drafter", "part"),
    [
        ("medusa", "medusa"),
        ("medusa", "medusa-full"),
        ("eagle", "eagle"),
        ("eagle", "eagle-own"),
        ("eagle", "eagle-listed"),
        ("eagle", "eagle-own-listed"),
        ("eagle3", "eagle3"),
        ("eagle3", "eagle3-full"),
        *(("eagle3", f"eagle3-{name}") for name in NORMS),
    ],
)
def test_drafts_are_the_formulas(make_rig, bundle, monkeypatch, drafter, part):
    """Chains and trees, several sequences, prompts of one token and of several chunks, accepted
    and rejected nodes, temperatures 0 and 1."""
    methods = [spec(drafter, part, tree) for tree in TREES]
    rig = make_rig(bundle, methods, prefill_chunk=CHUNK)
    seen = record(rig, monkeypatch)
    rng = random.Random(1)
    asked = []
    for index, length in enumerate((1, 2, CHUNK - 3, CHUNK + 1, 3 * CHUNK + 5, 9)):
        prompt = [rng.randrange(VOCAB) for _ in range(length)]
        temperature = float(index % 2)
        name = methods[index % 3].name
        asked.append(rig.submit(name, prompt, max_tokens=9, temperature=temperature, seed=index))
    answers = rig.finish(*asked)
    assert sum(answer.stats.accepted_tokens for answer in answers) > 0
    assert {drafted.method for drafted in seen} == {method.name for method in methods}
    head = heads_reference.Head(bundle.part(part), hugging_face(bundle.part("target")))
    reference = getattr(heads_reference, drafter)
    with torch.inference_mode():
        for drafted in seen:
            compare(drafted, lambda known, path: reference(head, known, path))


def compare(drafted: Drafted, reference: Callable[[list[int], list[int]], Tensor]) -> None:
    """Each node's logits, along every leaf's path."""
    assert len(drafted.logits) == len(drafted.tokens)
    leaves = set(range(len(drafted.tokens))) - set(drafted.parents)
    for leaf in leaves:
        path, node = drafted.path(leaf), leaf
        expected = reference(drafted.known, path[:-1])
        for level in reversed(range(len(path))):
            torch.testing.assert_close(drafted.logits[node], expected[level], atol=1e-3, rtol=1e-3)
            node = drafted.parents[node]


@pytest.mark.parametrize("part", ["medusa", "eagle", "eagle3"])
def test_a_sequence_keeps_no_states_but_its_own(make_rig, bundle: Bundle, part: str) -> None:
    """Not those of a long prompt that are read, nor of the whole batch."""
    rig = make_rig(bundle, [spec(part, part, "chain")], prefill_chunk=CHUNK)
    prompts = [[1] * 40, [2] * 3, [3] * 20]
    asked = [rig.submit(f"{part}_chain", prompt, max_tokens=9) for prompt in prompts]
    (drafter,) = rig.scheduler._rows._drafters
    for _ in range(4):
        rig.round()
        held = [drafter._states[s.id] for s in asked if s.id in drafter._states]
        states = held if part == "medusa" else [t for state in held for t in state.unread]
        assert states
        assert all(t.untyped_storage().nbytes() == t.nbytes for t in states)


LISTED = "draft_vocabulary.json"
NESTED = {"eagle_aux_hidden_state_layer_ids": [0, 1]}


@pytest.mark.parametrize(
    ("part", "change", "said"),
    [
        ("eagle", text(LISTED, '{"token_ids": []}'), "token_ids must be a list of token ids"),
        (
            "eagle",
            text(LISTED, '{"token_ids": [1, 24]}'),
            "maps to tokens 1 .. 24, the target has 24",
        ),
        ("eagle", config(hidden_size=32), r"eagle/config.json: hidden_size is 32, the target's is"),
        ("medusa", config(vocab_size=7), "medusa/config.json: vocab_size is 7, the target's is 24"),
        ("eagle", config(num_hidden_layers=2), "'llama' with 2 layers is not computed here"),
        ("eagle3", config(fc_norm=True), "lack fc_norm.0.weight"),
        ("eagle3", config(parallel_drafting=True), "parallel_drafting is not computed here"),
        (
            *("eagle3", config(eagle_config=NESTED)),
            r"fc.weight takes 192 values; .*\(0, 1\) of a target with 3 layers have 128",
        ),
        (
            *("eagle3", config(eagle_aux_hidden_state_layer_ids=[0, 1, 3])),
            r"layers \(0, 1, 3\) of a target with 3 layers",
        ),
        ("eagle3", tensors(without("d2t")), "12 rows for a vocabulary of 24, .* names none"),
        ("medusa", tensors(without("token_map")), "LM head has 12 rows"),
        ("eagle", tensors(without("fc.weight")), "lack fc.weight"),
    ],
)
def test_heads_that_do_not_fit_are_refused(make_rig, two_dozen, tmp_path, part, change, said):
    shutil.copytree(two_dozen.path, tmp_path / "other")
    other = load_bundle(tmp_path / "other")
    change(other.part(part))
    with pytest.raises(BundleError, match=said):
        make_rig(other, [spec(part, part, "chain")])
