"""A head that training has saved drafts in the engine what training saw it draft."""

import shutil

import pytest
import torch
from decoding import hugging_face
from test_head_drafting import Drafted, record, spec

from training.heads import Eagle, Eagle3, Head, Medusa
from training.teacher import Teacher
from workers.bundle import load_bundle

VOCAB = 24
KNOWN = torch.arange(1, VOCAB, 2)


def trained(kind: str, teacher: Teacher, embedding: torch.Tensor) -> Head:
    """A head in float32 whose weights bfloat16 holds exactly, so that saving loses nothing."""
    torch.manual_seed(3)
    made = {
        "eagle": lambda: Eagle(teacher),
        "eagle3": lambda: Eagle3(teacher, KNOWN),
        "medusa": lambda: Medusa(teacher, KNOWN),
    }
    head = made[kind]()
    with torch.no_grad():
        for weight in head.parameters():
            weight.copy_((weight + 0.1 * torch.randn_like(weight)).bfloat16())
    head.embedding = embedding
    if kind == "eagle":
        head.lm_head = embedding
    return head


@pytest.mark.parametrize("kind", ["eagle", "eagle3", "medusa"])
def test_saved_and_loaded(make_rig, two_dozen, tmp_path, monkeypatch, kind):
    target = two_dozen
    model = hugging_face(target.part("target"))
    embedding = model.get_input_embeddings().weight.detach()
    head = trained(kind, Teacher.load(target.part("target")), embedding)
    folder = shutil.copytree(target.path, tmp_path / "bundle")
    shutil.rmtree(folder / kind)
    head.save(folder / kind)
    rig = make_rig(load_bundle(folder), [spec(kind, kind, "chain")])
    seen = record(rig, monkeypatch)
    rig.finish(rig.submit(f"{kind}_chain", [5, 3, 20, 11, 7, 3], max_tokens=15))
    assert len(seen) > 3
    with torch.inference_mode():
        for drafted in seen:
            compare(head, model, drafted)


def compare(head: Head, model: torch.nn.Module, drafted: Drafted) -> None:
    """The chain's logits, position by position, with those of training's rolling forward."""
    text = torch.tensor([drafted.known + drafted.tokens])
    hidden = model(text, output_hidden_states=True).hidden_states
    states = torch.stack([hidden[i] for i in (*head.captures, -1)], dim=2)[:, :-1]
    documents = torch.zeros_like(text[:, 1:], dtype=torch.int32)
    outputs = head.drafts(text[:, 1:], states, documents, len(drafted.tokens))
    slot = len(drafted.known) - 2
    for output, row in zip(outputs, drafted.logits, strict=True):
        spoken = head.logits(output[0, slot][None])[0]
        ours = row if head.vocabulary is None else row[head.vocabulary]
        torch.testing.assert_close(ours, spoken, atol=1e-3, rtol=1e-3)
        if head.vocabulary is not None:
            assert torch.isinf(row).sum() == VOCAB - len(KNOWN)
