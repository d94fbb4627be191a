"""Targets as teachers of heads: ours, transformers' own, and those that are refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from transformers import AutoConfig, AutoModelForCausalLM

from tests.training.counting import GEOMETRY
from training.heads.eagle import Eagle
from training.heads.teacher import Teacher
from training.model import Layer, Llama

SHAPE = replace(GEOMETRY, layers=3, heads=4, kv_heads=2)


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("model_type", {"model_type": "gemma"}),
        ("sliding_window", {"model_type": "mistral", "sliding_window": 16}),
        ("dynamic", {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}),
        ("quantization_config", {"quantization_config": {"quant_method": "fp8"}}),
    ],
)
def test_a_target_of_another_kind_is_refused_by_name(field, changes, tmp_path: Path) -> None:
    Llama(SHAPE).save(tmp_path)
    Teacher.load(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    with pytest.raises(ValueError, match=field):
        Teacher.load(tmp_path)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_a_target_that_transformers_computes(family: str, tmp_path: Path) -> None:
    """Untied, with its own head size and scaled rotary embeddings: states of packed documents are
    those of each alone, and its LM head makes its logits of the last one."""
    torch.manual_seed(0)
    scaled = {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}
    config = AutoConfig.for_model(
        family,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        intermediate_size=64,
        vocab_size=64,
        tie_word_embeddings=False,
        rope_parameters=scaled,
        initializer_range=0.1,
    )
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
    torch.testing.assert_close(head.layers[0].self_attn.inverse, halved)
    assert head.config()["rope_parameters"]["factor"] == 2.0


def test_all_layers_share_one_compiled_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    def compile_layer(layer: Layer, **options: Any) -> None:
        torch.nn.Module.compile(layer, backend=backend, **options)

    monkeypatch.setattr(Layer, "compile", compile_layer)
    torch.manual_seed(0)
    model = Llama(SHAPE)
    ids = torch.randint(0, 64, (2, 40))
    documents = (torch.arange(40) >= 15).long().expand(2, -1)
    expected = Teacher.of(model).states(ids, documents, (0, 2))
    states = Teacher.of(model, compiled=True).states(ids, documents, (0, 2))
    torch.testing.assert_close(states, expected)
    assert len(graphs) == 1
