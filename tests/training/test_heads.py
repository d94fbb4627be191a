"""Heads: what they see in training is what they see when they draft, and how they are stored."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from tests.training.counting import GEOMETRY, answers_only, make_rows
from training.heads.data import batch_tensors
from training.heads.eagle import Eagle
from training.heads.eagle3 import Eagle3
from training.heads.head import Head
from training.heads.loss import head_loss, hits
from training.heads.medusa import Medusa
from training.heads.packing import PackedRows
from training.heads.stored import StoredHead
from training.heads.teacher import Teacher
from training.model import Llama
from workers.torch_engine.models.heads.eagle3 import capture_layers

SHAPE = replace(GEOMETRY, layers=3, heads=4, kv_heads=2)
WORDS = torch.arange(4, 64, 2)
KINDS = ["eagle", "eagle3", "medusa"]


def make_teacher() -> Teacher:
    torch.manual_seed(1)
    model = Llama(SHAPE)
    with torch.no_grad():  # large enough for clear preferences
        model.embed_tokens.weight.mul_(10)
    return Teacher.of(model)


def own(teacher: Teacher) -> Llama:
    """The model that gives the teacher its states."""
    return teacher.model


def make_head(kind: str, teacher: Teacher) -> Head:
    torch.manual_seed(2)
    if kind == "eagle":
        head: Head = Eagle(teacher)
    else:
        head = Eagle3(teacher, WORDS) if kind == "eagle3" else Medusa(teacher, WORDS, 3, 2)
        for p in head.parameters():
            torch.nn.init.normal_(p, std=0.2)
    head.calibrate(torch.randn(1, 5, len(head.captures) + 1, SHAPE.hidden) * 3)
    return head.float()


def features(head: Head, teacher: Teacher, ids: Tensor, documents: Tensor) -> Tensor:
    """The target's states in float32."""
    with torch.no_grad():
        return torch.stack(own(teacher).states(ids, head.captures, documents), dim=2)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["eagle", "eagle3"])
def test_a_packed_document_is_drafted_for_as_alone(kind: str) -> None:
    """That training sees what the engine drafts is tested in test_trained_heads.py."""
    teacher = make_teacher()
    head = make_head(kind, teacher)
    ids = torch.randint(0, 64, (1, 24))
    documents = torch.tensor([[1] * 9 + [2] * 15])

    def rolled(span: slice) -> list[Tensor]:
        states = features(head, teacher, ids[:, span], documents[:, span])
        labels = F.pad(ids[:, span][:, 1:], (0, 1))
        return head.drafts(labels, states, documents[:, span], 4)

    packed = rolled(slice(0, 24))
    for first, last in ((0, 9), (9, 24)):
        roots = last - first - 5
        for together, alone in zip(packed, rolled(slice(first, last)), strict=True):
            together = together[:, first : first + roots]
            torch.testing.assert_close(together, alone[:, :roots], atol=2e-5, rtol=1e-4)


@torch.no_grad()
def test_packed_documents_do_not_see_each_other() -> None:
    model = own(make_teacher())
    ids = torch.randint(0, 64, (2, 300))
    documents = torch.arange(300).expand(2, -1) // 130
    packed = model.states(ids, (0, 2), documents)
    for start in (0, 130, 260):
        span = slice(start, min(start + 130, 300))
        for whole, alone in zip(packed, model.states(ids[:, span], (0, 2)), strict=True):
            torch.testing.assert_close(whole[:, span], alone, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(model.states(ids)[-1], model.hidden(ids))


def test_a_medusa_head_begins_as_the_targets_own_prediction() -> None:
    teacher = make_teacher()
    head = Medusa(teacher, WORDS, 3)
    states = torch.randn(1, 5, 1, SHAPE.hidden)
    for output in head.drafts(torch.zeros(1, 5, dtype=torch.long), states, states, 3):
        logits = head.logits(output)[0]
        expected = F.linear(states[0, :, 0], teacher.lm_head.float())[:, WORDS]
        torch.testing.assert_close(logits, expected)


class Oracle(Head):
    """Knows the target's later states."""

    kind = "oracle"

    def roll(self, embeddings, states, _):
        final = states[..., -1, :]
        return [F.pad(final[:, 1 + j :], (0, 0, 0, 1 + j)) for j in range(len(embeddings))]

    def logits(self, output):
        words = self.embedding if self.vocabulary is None else self.embedding[self.vocabulary]
        return F.linear(output, words.float())

    def config(self):
        return {}


@pytest.mark.parametrize("words", [None, torch.arange(64)])
def test_the_loss_is_least_for_the_targets_own_distribution(words: Tensor | None) -> None:
    teacher = make_teacher()
    packed = PackedRows(answers_only(make_rows(60)), 64, positions=3)
    batch = next(packed.batches(512))
    ids, documents = torch.from_numpy(batch.inputs), torch.from_numpy(batch.documents)
    oracle = Oracle(teacher, words)
    states = features(oracle, teacher, ids, documents)
    tensors = batch_tensors(batch, states, torch.device("cpu"))
    lm_head = teacher.lm_head.float()
    least = head_loss(oracle, lm_head, 1.0)(*tensors)
    ranks, entropies = hits(oracle, lm_head, tensors)
    weights = tensors[-1]
    assert weights.sum() > 100
    assert (ranks[weights > 0] == 0).all()
    entropy = torch.distributions.Categorical(
        logits=F.linear(states[..., -1, :], lm_head)
    ).entropy()
    for j in range(3):
        place = tensors[3] + 1 + j
        mine = weights[:, j] > 0
        torch.testing.assert_close(entropies[mine, j], entropy.flatten()[place[mine]])
    assert head_loss(make_head("eagle", teacher), lm_head, 1.0)(*tensors) > least


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_have_the_names_and_shapes_that_vllm_loads(kind: str, tmp_path: Path) -> None:
    teacher = make_teacher()
    head = make_head(kind, teacher)
    head.save(tmp_path)
    weights = load_file(str(tmp_path / "model.safetensors"))
    shapes = {name: tuple(w.shape) for name, w in weights.items()}
    h, f, d, k = SHAPE.hidden, SHAPE.ffn, SHAPE.head_dim, len(WORDS)
    width = 2 * h if kind == "eagle3" else h
    prefix = {"eagle": "layers.0.", "eagle3": "midlayer."}.get(kind, "")
    block = {
        f"{prefix}self_attn.q_proj.weight": (4 * d, width),
        f"{prefix}self_attn.k_proj.weight": (2 * d, width),
        f"{prefix}self_attn.v_proj.weight": (2 * d, width),
        f"{prefix}self_attn.o_proj.weight": (h, 4 * d),
        f"{prefix}mlp.gate_proj.weight": (f, h),
        f"{prefix}mlp.up_proj.weight": (f, h),
        f"{prefix}mlp.down_proj.weight": (h, f),
        f"{prefix}post_attention_layernorm.weight": (h,),
    }
    expected = {
        "eagle": {"fc.weight": (h, 2 * h), **block},
        "eagle3": {
            "fc.weight": (h, 3 * h),
            **block,
            "midlayer.input_layernorm.weight": (h,),
            "midlayer.hidden_norm.weight": (h,),
            "norm.weight": (h,),
            "lm_head.weight": (k, h),
            "d2t": (k,),
        },
        "medusa": {
            **{f"blocks.{i}.layers.{n}.weight": (h, h) for i in range(3) for n in range(2)},
            **{f"blocks.{i}.layers.{n}.bias": (h,) for i in range(3) for n in range(2)},
            "lm_head.weight": (k, h),
            "token_map": (k,),
        },
    }
    assert shapes == expected[kind]
    if kind == "eagle3":
        assert (weights["d2t"] + torch.arange(k)).tolist() == WORDS.tolist()
    if kind == "medusa":
        assert weights["token_map"].tolist() == WORDS.tolist()

    config = json.loads((tmp_path / "config.json").read_text())
    named = {
        "eagle": "EagleLlamaForCausalLM",
        "eagle3": "LlamaForCausalLMEagle3",
        "medusa": "MedusaModel",
    }
    assert config["architectures"] == [named[kind]]
    assert config["hidden_size"] == h
    if kind == "eagle3":
        assert config["draft_vocab_size"] == k
        assert config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [0, 1, 2]

    again = make_head(kind, teacher)
    with torch.no_grad():
        for p in again.parameters():
            p.zero_()
    again.load(StoredHead(tmp_path, kind))
    for one, other in zip(again.parameters(), head.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-3, rtol=0.01)
    if kind != "medusa":  # what is stored takes the states as they are
        assert head.fc.scale.max() < 0.5 or kind == "eagle"
        torch.testing.assert_close(
            weights["fc.weight"].float(), head.fc.weight * head.fc.scale, atol=1e-3, rtol=0.01
        )


def test_the_layers_that_eagle3_reads() -> None:
    assert capture_layers(14) == (2, 7, 11)
    assert capture_layers(32) == (2, 16, 29)
    assert capture_layers(3) == (0, 1, 2)
    with pytest.raises(ValueError, match="three layers"):
        capture_layers(2)
