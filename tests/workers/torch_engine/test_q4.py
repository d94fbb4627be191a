"""A target with the 4-bit weights of a GGUF file, or whose matrices are rounded to 8 bits."""

import asyncio
import random
import shutil

import pytest
import torch
from decoding import LOSSLESS, decode
from safetensors.torch import load_file, save_file

from workers.bundle import BundleError, load_bundle
from workers.torch_engine.models import llama
from workers.torch_engine.models.kernels import block_product
from workers.torch_engine.models.layout import Span
from workers.torch_engine.models.model import chosen_dtype, load_target
from workers.torch_engine.models.operators import has_amx
from workers.torch_engine.models.weights import pack, unpacked
from workers.weight_files import PACKED

pytestmark = pytest.mark.skipif(not block_product.is_built(), reason=block_product.NOT_BUILT)
CPU = torch.device("cpu")
PROMPTS = [[*range(20, 44), *range(20, 40)], list(range(60, 71)), [5, 6, 7, 5, 6, 7, 5, 6]]


def rounded(weight):
    """The weight in groups of 32, each in 16 steps from its smallest to its largest value."""
    groups = weight.float().view(len(weight), -1, 32)
    low, high = groups.amin(-1), groups.amax(-1)
    scale = (high - low) / 15
    codes = ((groups - low[..., None]) / scale[..., None]).round().clamp(0, 15)
    return pack(codes.to(torch.uint8).flatten(1), scale, low)


@pytest.fixture(scope="module")
def q4_bundle(tiny_bundle, tmp_path_factory):
    """The tiny bundle with its layers' matrices in 4 bits, and the same values in bfloat16."""
    folder = tmp_path_factory.mktemp("q4") / "tiny"
    shutil.copytree(tiny_bundle.path, folder)
    file = folder / "target" / "model.safetensors"
    weights = load_file(file)
    packed = {name: rounded(w) for name, w in weights.items() if name.endswith("proj.weight")}
    (folder / "target" / PACKED).parent.mkdir()
    save_file(packed, folder / "target" / PACKED)
    weights |= {name: unpacked(each) for name, each in packed.items()}
    save_file({name: each.bfloat16() for name, each in weights.items()}, file)
    return load_bundle(folder)


def logits(model, tokens):
    pool = model.make_pool(1, 64)
    with torch.inference_mode():
        return model.forward(model.lay_out([Span(pool.acquire(), tokens)], pool), pool)[0]


@pytest.mark.parametrize("dtype", ["q4", "int8"])
async def test_every_method_says_what_plain_decoding_says(load_engine, q4_bundle, dtype):
    """A row has the same integers alone and in a batch."""
    engine = load_engine(LOSSLESS, q4_bundle, dtype=dtype)
    alone = [await decode(engine, "naive", p, max_tokens=20) for p in PROMPTS]
    mixed = await asyncio.gather(
        *(decode(engine, m, p, max_tokens=20) for p in PROMPTS for m in LOSSLESS)
    )
    for index, answer in enumerate(mixed):
        assert answer.tokens == alone[index // len(LOSSLESS)].tokens
    assert sum(answer.stats.accepted_tokens for answer in mixed) > 0


@pytest.mark.parametrize("seed", range(6))
def test_a_node_of_a_tree_has_the_bits_of_plain_decoding(q4_bundle, seed):
    """With siblings, another sequence in the forward, and the tree in one forward or two."""
    draw = random.Random(seed)
    model = load_target(q4_bundle.part("target"), "q4", CPU)
    parents = [draw.randint(-1, i - 1) for i in range(9)]
    tokens = [draw.randrange(256) for _ in parents]
    pool, alone = model.make_pool(2, 64), model.make_pool(1, 64)
    other, lease, plain = pool.acquire(), pool.acquire(), alone.acquire()

    def run(spans, pool):
        with torch.inference_mode():
            return model.forward(model.lay_out(spans, pool), pool)[0]

    for each, rows in ((lease, pool), (other, pool), (plain, alone)):
        run([Span(each, PROMPTS[each is other])], rows)
        rows.commit(each, range(len(PROMPTS[each is other])))
    cut = draw.choice([0, 4])
    first = run([Span(lease, tokens[:cut], parents[:cut])], pool) if cut else None
    second = run([Span(other, [3, 4, 5]), Span(lease, tokens[cut:], parents, read=cut)], pool)[3:]
    ours = second if first is None else torch.cat((first, second))
    path = [8]
    while parents[path[0]] >= 0:
        path.insert(0, parents[path[0]])
    for node in path:
        expected = run([Span(plain, [tokens[node]])], alone)
        alone.commit(plain, [0])
        assert torch.equal(ours[node], expected[0])


@pytest.mark.parametrize(
    ("dtype", "share"),
    [("q4", 0.0), ("q4", 1.0), ("int8", 0.0)],
    ids=["4 bits alone", "with a second copy", "8 bits"],
)
def test_its_logits_are_near_those_in_float32(q4_bundle, monkeypatch, dtype, share):
    monkeypatch.setattr(llama, "MEMORY_SHARE", share)
    folder = q4_bundle.part("target")
    exact = logits(load_target(folder, "float32", CPU), PROMPTS[0])
    ours = logits(load_target(folder, dtype, CPU), PROMPTS[0])
    assert not torch.equal(exact, ours)
    assert torch.cosine_similarity(exact, ours, dim=-1).min() > 0.98


def test_projections_that_a_layer_joins_need_four_bits_together(q4_bundle, tmp_path):
    """As in files whose value projections have more bits than the others."""
    folder = tmp_path / "target"
    shutil.copytree(q4_bundle.part("target"), folder)
    packed = load_file(folder / PACKED)
    for name in ("layers.0.self_attn.v_proj", "layers.1.mlp.up_proj"):
        del packed[f"model.{name}.weight"]
    save_file(packed, folder / PACKED)
    exact = logits(load_target(q4_bundle.part("target"), "float32", CPU), PROMPTS[1])
    ours = logits(load_target(folder, "q4", CPU), PROMPTS[1])
    assert torch.cosine_similarity(exact, ours, dim=-1).min() > 0.99


@pytest.mark.parametrize("kept", [[], ["model.embed_tokens.weight"]], ids=["none", "embeddings"])
def test_matrices_without_four_bits_are_rounded_to_eight(q4_bundle, tmp_path, kept):
    """As in files of 5, 6 or 8 bits, and in those whose embeddings have 4."""
    folder = tmp_path / "target"
    shutil.copytree(q4_bundle.part("target"), folder)
    weights = load_file(folder / "model.safetensors")
    packed = {name: rounded(weights[name]) for name in kept}
    save_file(packed, folder / PACKED)
    weights |= {name: unpacked(each) for name, each in packed.items()}
    save_file(weights, folder / "model.safetensors")
    exact = logits(load_target(folder, "float32", CPU), PROMPTS[1])
    ours = logits(load_target(folder, "q4", CPU), PROMPTS[1])
    assert torch.cosine_similarity(exact, ours, dim=-1).min() > 0.99


def test_a_target_without_four_bits_is_refused(tiny_bundle):
    with pytest.raises(BundleError, match=r"q4 needs the weights of a quantised GGUF"):
        load_target(tiny_bundle.part("target"), "q4", CPU)
    with pytest.raises(ValueError, match=r"engine.dtype: q4 is computed on CPUs"):
        load_target(tiny_bundle.part("target"), "q4", torch.device("cuda"))


def test_auto_is_the_fastest_for_the_target_and_the_device(tiny_bundle, q4_bundle):
    assert chosen_dtype("auto", q4_bundle, CPU) == "q4"
    assert chosen_dtype("auto", tiny_bundle, CPU) == ("bfloat16" if has_amx() else "float32")
    assert chosen_dtype("auto", q4_bundle, torch.device("cuda")) == "bfloat16"
    assert chosen_dtype("float32", q4_bundle, CPU) == "float32"


def test_without_the_kernel_auto_is_another_dtype(q4_bundle, monkeypatch):
    monkeypatch.setattr(block_product, "is_built", lambda: False)
    assert chosen_dtype("auto", q4_bundle, CPU) != "q4"
    for dtype in ("q4", "int8"):
        with pytest.raises(ValueError, match=r"engine.dtype: q4 and int8 need .* a C compiler"):
            load_target(q4_bundle.part("target"), dtype, CPU)
