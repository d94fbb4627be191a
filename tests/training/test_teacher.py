"""Targets as teachers of heads: their states, and those that are refused."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from spoiling import config
from transformers import AutoConfig, AutoModelForCausalLM

from tests.training.counting import SHAPE, make_target
from training import teacher as teaching
from training.heads import Eagle
from training.teacher import Teacher

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("model_type", {"model_type": "gemma"}),
        ("sliding_window", {"model_type": "mistral", "sliding_window": 16}),
        ("dynamic", {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}),
        ("quantization_config", {"quantization_config": {"quant_method": "fp8"}}),
    ],
)
def test_a_target_of_another_kind_is_refused_by_name(field, changes, tmp_path):
    make_target().config.save_pretrained(tmp_path)
    config(**changes)(tmp_path)
    with pytest.raises(ValueError, match=field):
        Teacher.load(tmp_path)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_states_of_packed_documents_are_those_of_each_alone(family: str, tmp_path: Path) -> None:
    """Of an untied target with its own head size and scaled rotary embeddings. Its LM head makes
    its logits of the last state."""
    torch.manual_seed(0)
    scaled = {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}
    more: dict[str, Any] = {"head_dim": 32, "rope_parameters": scaled, "tie_word_embeddings": False}
    config = AutoConfig.for_model(family, **SHAPE | more, initializer_range=0.1)
    model = AutoModelForCausalLM.from_config(config).to(torch.bfloat16)
    model.save_pretrained(tmp_path)
    teacher = Teacher.load(tmp_path)
    ids = torch.randint(0, 64, (1, 40))
    documents = (torch.arange(40) >= 15).long()[None]
    states = teacher.states(ids, documents, (0, 2))
    for span in (slice(0, 15), slice(15, 40)):
        with torch.no_grad():
            alone = model(ids[:, span], output_hidden_states=True)
        expected = [alone.hidden_states[i] for i in (0, 2, 3)]
        close = {"atol": 0.15, "rtol": 0.05}
        torch.testing.assert_close(states[:, span], torch.stack(expected, dim=2), **close)
        logits = F.linear(states[:, span, -1].float(), teacher.lm_head.float()).bfloat16()
        torch.testing.assert_close(logits, alone.logits, atol=0.5, rtol=0.05)
    head = Eagle(teacher)
    assert head.layers[0].self_attn.q_proj.weight.shape == (64, 32)
    halved = 0.5 * 10000.0 ** (-torch.arange(0, 32, 2) / 32)
    torch.testing.assert_close(head.layers[0].self_attn.rotary.inv_freq, halved)
    assert head.config["rope_parameters"]["factor"] == 2.0


@pytest.mark.parametrize(("units", "wanted"), [(True, torch.bfloat16), (False, torch.float32)])
def test_a_cpu_without_units_for_bfloat16_computes_in_float32(monkeypatch, units, wanted):
    monkeypatch.setattr(teaching, "computes_bfloat16", lambda: units)
    assert teaching.arithmetic(CPU) == wanted
    assert teaching.arithmetic(torch.device("cuda")) == torch.bfloat16
    with teaching.autocast(CPU):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == wanted
