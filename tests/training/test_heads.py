"""Heads: what they see in training is what they see when they draft, and how they are stored."""

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from tests.training.counting import SHAPE, make_target, make_texts
from training.heads import Eagle, Eagle3, Head, Medusa, StoredHead
from training.packing import PackedTexts
from training.teacher import Teacher
from training.trainer import head_loss
from workers.torch_engine.models.heads.eagle import capture_layers

HIDDEN = SHAPE["hidden_size"]
WORDS = torch.arange(4, 64, 2)


def make_teacher() -> Teacher:
    model = make_target(num_attention_heads=4, num_key_value_heads=2, head_dim=8)
    with torch.no_grad():  # large enough for clear preferences
        model.model.embed_tokens.weight.mul_(10)
    return Teacher(model)


def make_head(kind: str, teacher: Teacher) -> Head:
    torch.manual_seed(2)
    if kind == "eagle":
        head: Head = Eagle(teacher)
    else:
        head = Eagle3(teacher, WORDS) if kind == "eagle3" else Medusa(teacher, WORDS, 3, 2)
        for p in head.parameters():
            torch.nn.init.normal_(p, std=0.2)
    head.calibrate(torch.randn(1, 5, len(head.captures) + 1, HIDDEN) * 3)
    return head.float()


@torch.no_grad()
@pytest.mark.parametrize("kind", ["eagle", "eagle3"])
def test_a_packed_document_is_drafted_for_as_alone(kind: str) -> None:
    """That training sees what the engine drafts is tested in test_trained_heads.py."""
    teacher = make_teacher()
    head = make_head(kind, teacher)
    ids = torch.randint(0, 64, (1, 300))
    documents = torch.tensor([[1] * 130 + [2] * 170])
    states = torch.randn(1, 300, len(head.captures) + 1, HIDDEN)

    def rolled(span: slice) -> list[Tensor]:
        labels = F.pad(ids[:, span][:, 1:], (0, 1))
        return head.drafts(labels, states[:, span], documents[:, span], 4)

    packed = rolled(slice(0, 300))
    for first, last in ((0, 130), (130, 300)):
        roots = last - first - 5
        for together, alone in zip(packed, rolled(slice(first, last)), strict=True):
            together = together[:, first : first + roots]
            torch.testing.assert_close(together, alone[:, :roots], atol=2e-5, rtol=1e-4)


def test_a_medusa_head_begins_as_the_targets_own_prediction() -> None:
    teacher = make_teacher()
    head = Medusa(teacher, WORDS, 3)
    states = torch.randn(1, 5, 1, HIDDEN)
    for output in head.drafts(torch.zeros(1, 5, dtype=torch.long), states, states, 3):
        expected = F.linear(states[0, :, 0], teacher.lm_head.float())[:, WORDS]
        torch.testing.assert_close(head.logits(output)[0].float(), expected, atol=0.02, rtol=0.02)


class Oracle(Head):
    """Knows the target's later states."""

    def roll(self, embeddings, states, _):
        final = states[..., -1, :]
        return [F.pad(final[:, 1 + j :], (0, 0, 0, 1 + j)) for j in range(len(embeddings))]

    def logits(self, output):
        words = self.embedding if self.vocabulary is None else self.embedding[self.vocabulary]
        return F.linear(output, words.float())


@pytest.mark.parametrize("words", [None, torch.arange(64)])
def test_the_loss_is_least_for_the_targets_own_distribution(words: Tensor | None) -> None:
    teacher = make_teacher()
    batch = next(PackedTexts(make_texts(60), 64, positions=3).batches(512))
    ids, documents = torch.from_numpy(batch.inputs), torch.from_numpy(batch.documents)
    states = teacher.states(ids, documents, ()).float()
    lm_head, oracle = teacher.lm_head.float(), Oracle(teacher, words)
    least = head_loss(oracle, lm_head, batch, states)
    each = torch.distributions.Categorical(logits=F.linear(states[..., -1, :], lm_head)).entropy()
    weights, expected = torch.from_numpy(batch.weights), torch.zeros(())
    for j in range(3):
        mine = weights[:, j] > 0
        place = torch.from_numpy(batch.slots)[mine] + 1 + j
        expected += 0.8**j * each.flatten()[place].mean()
    torch.testing.assert_close(least, expected / (1 + 0.8 + 0.64), atol=1e-4, rtol=1e-3)
    assert head_loss(make_head("eagle", teacher).float(), lm_head, batch, states) > least


@pytest.mark.parametrize("kind", ["eagle", "eagle3", "medusa"])
def test_a_head_comes_back_as_it_was_stored(kind: str, tmp_path: Path) -> None:
    """The engine loads its tensors by name in test_trained_heads."""
    teacher = make_teacher()
    head = make_head(kind, teacher)
    head.save(tmp_path)
    weights = load_file(str(tmp_path / "model.safetensors"))
    config = json.loads((tmp_path / "config.json").read_text())
    named = {
        "eagle": "EagleLlamaForCausalLM",
        "eagle3": "LlamaForCausalLMEagle3",
        "medusa": "MedusaModel",
    }
    assert config["architectures"] == [named[kind]]
    assert config["hidden_size"] == HIDDEN
    if kind == "eagle3":
        assert config["draft_vocab_size"] == len(WORDS)
        assert config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [0, 1, 2]

    stored = StoredHead(tmp_path, kind)
    words = None if stored.vocabulary is None else stored.vocabulary.tolist()
    assert words == (None if kind == "eagle" else WORDS.tolist())
    again = make_head(kind, teacher)
    with torch.no_grad():
        for p in again.parameters():
            p.zero_()
    again.load(stored)
    for one, other in zip(again.parameters(), head.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-3, rtol=0.01)
    if kind != "medusa":  # what is stored takes the states as they are
        torch.testing.assert_close(
            weights["fc.weight"].float(), head.fc.weight * head.fc.scale, atol=1e-3, rtol=0.01
        )


def test_the_layers_that_eagle3_reads() -> None:
    assert capture_layers(14) == (2, 7, 11)
    assert capture_layers(32) == (2, 16, 29)
    assert capture_layers(3) == (0, 1, 2)
    with pytest.raises(ValueError, match="three layers"):
        capture_layers(2)
