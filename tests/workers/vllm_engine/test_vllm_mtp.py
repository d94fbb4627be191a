"""`vllm_mtp` on the demo's target in the layout of MiMo, whose MTP layer is fitted here: the demo
has none."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from decoding import Answer, assert_greedy, decode_all, hugging_face, vllm_cpu
from safetensors.torch import load_file, save_file

from workers.bundle import Bundle, load_bundle
from workers.loader import load_engine

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

TOKENS = 48
CONFIG = vllm_cpu(max_batch=16, max_context=512, max_waiting=512, kv_slots=8192)
LAYER = "model.mtp_layers.0."


async def answers(bundle: Bundle, method: str, prompts: list[list[int]]) -> list[Answer]:
    engine = load_engine((method,), bundle, CONFIG)
    try:
        return await decode_all(engine, [(method, ids) for ids in prompts], TOKENS)
    finally:
        engine.close()


@torch.inference_mode()
def fitted(bundle: Bundle, texts: list[list[int]]) -> torch.Tensor:
    """The matrix [hidden, 2 * hidden] that best gives each next state of the texts, before the
    final norm and of size 1, from the state and the next token's embedding."""
    model = hugging_face(bundle.part("target"))
    inputs, outputs = [], []
    for text in texts:
        ids = torch.tensor([text])
        states = model(ids, output_hidden_states=True).hidden_states[-1][0]
        words = model.get_input_embeddings()(ids)[0]
        words = words * words.square().mean(-1, keepdim=True).add(1e-5).rsqrt()
        inputs.append(torch.cat((states[:-1], words[1:]), -1))
        outputs.append(states[1:] / model.model.norm.weight)
    return torch.linalg.lstsq(torch.cat(inputs), torch.cat(outputs)).solution.T.contiguous()


def with_mtp_layer(bundle: Bundle, folder: Path, matrix: torch.Tensor) -> Bundle:
    """The bundle's target as a MiMo: a Qwen2, so with biases, which are zero. The MTP layer is the
    matrix alone: its block adds nothing."""
    weights = load_file(bundle.part("target") / "model.safetensors")
    shapes = {name: weights[name].shape for name in weights if ".layers.0." in name}
    for name, shape in shapes.items():
        layer = torch.ones(shape) if "norm" in name else torch.zeros(shape)
        weights[name.replace("model.layers.0.", LAYER)] = layer
    for name in [
        name
        for name in weights
        if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight"))
    ]:
        weights[name.replace("weight", "bias")] = torch.zeros(len(weights[name]))
    norm = weights["model.norm.weight"]
    weights |= {
        f"{LAYER}hidden_layernorm.weight": norm.clone(),
        f"{LAYER}token_layernorm.weight": torch.ones(norm.shape),
        f"{LAYER}final_layernorm.weight": norm.clone(),
        f"{LAYER}input_proj.weight": matrix,
        # The drafter reads it from the checkpoint, tied or not.
        "lm_head.weight": weights["model.embed_tokens.weight"].clone(),
    }
    config = json.loads((bundle.part("target") / "config.json").read_text())
    mimo = {"architectures": ["MiMoForCausalLM"], "model_type": "qwen2"}
    (folder / "target").mkdir()
    (folder / "target" / "config.json").write_text(
        json.dumps(config | mimo | {"num_nextn_predict_layers": 1})
    )
    save_file(weights, folder / "target" / "model.safetensors", metadata={"format": "pt"})
    shutil.copytree(bundle.part("tokenizer"), folder / "tokenizer")
    parts = {"target": "target", "tokenizer": "tokenizer"}
    (folder / "bundle.json").write_text(json.dumps({"name": "mimo", "parts": parts}))
    return load_bundle(folder)


async def test_it_decodes_as_plain_decoding_does_and_is_right_at_times(
    bundle, prompts, all_prompts, tmp_path
):
    others = [ids for of_domain in all_prompts.values() for ids in of_domain[:-1]]
    plain = await answers(bundle, "naive", others)
    matrix = fitted(bundle, [ids + a.tokens for ids, a in zip(others, plain, strict=True)])
    drafted = await answers(with_mtp_layer(bundle, tmp_path, matrix), "vllm_mtp", prompts)
    for ids, answer in zip(prompts, drafted, strict=True):
        assert_greedy(bundle, ids, answer.tokens, TOKENS, ignore_eos=True)
    accepted = sum(answer.stats.accepted_tokens for answer in drafted)
    assert accepted > 0.2 * sum(answer.stats.drafted_tokens for answer in drafted)
