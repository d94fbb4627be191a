"""Our forward against Hugging Face's, and trees against the chains they are made of."""

import random
import shutil

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from spoiling import config

from workers.bundle import Bundle, BundleError
from workers.torch_engine.models.kernels.block_product import is_built
from workers.torch_engine.models.kv_pool import KvPool
from workers.torch_engine.models.layout import Span
from workers.torch_engine.models.llama import Llama

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def model(byte_bundle: Bundle) -> Llama:
    return Llama.load(byte_bundle.part("target"), torch.float32, CPU)


def run(model: Llama, spans: list[Span], pool: KvPool, captures: tuple[int, ...] = ()):
    with torch.inference_mode():
        return model.forward(model.lay_out(spans, pool), pool, captures)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_the_kernel_of_attention_is_attention(byte_bundle: Bundle, data: st.DataObject) -> None:
    """Rows of all widths, some of them trees, some not in the forward."""
    model = Llama.load(byte_bundle.part("target"), torch.float32, CPU)
    draw = random.Random(data.draw(st.integers(0, 10_000)))
    pool = model.make_pool(6, 64)
    spans = list[Span]()
    for _ in range(6):
        lease = pool.acquire()
        if (length := draw.randint(0, 20)) > 0:
            run(model, [Span(lease, [draw.randrange(256) for _ in range(length)])], pool)
            lease.length = length
        count = draw.choice([1, 1, 1, 2, 5, 20])
        parents = [draw.randint(-1, i - 1) for i in range(count)] if draw.random() < 0.5 else None
        tokens = [draw.randrange(256) for _ in range(count)]
        if draw.random() < 0.8 or not spans:
            spans.append(Span(lease, tokens, parents))
    ours, places = run(model, spans, pool)[0], model.lay_out(spans, pool).places
    model._block._by_kernel = False
    torch.testing.assert_close(ours, run(model, spans, pool)[0], atol=2e-5, rtol=1e-4)
    assert model.lay_out(spans, pool).places is None
    assert (places is not None) == is_built()


@pytest.mark.skipif(not is_built(), reason="the kernel is not built")
@pytest.mark.parametrize("at", ["key", "value"])
def test_what_a_token_hears_of_nan_is_nan(byte_bundle: Bundle, at: str) -> None:
    model = Llama.load(byte_bundle.part("target"), torch.float32, CPU)
    pool = model.make_pool(2, 32)
    leases = [pool.acquire(), pool.acquire()]
    for lease in leases:
        run(model, [Span(lease, [1, 2, 3])], pool)
        lease.length = 3
    cache = pool.view(leases[0].row, 1, 3)[0]
    (cache.keys if at == "key" else cache.values)[0, :, 1, 0] = torch.nan
    logits = run(model, [Span(lease, [4]) for lease in leases], pool)[0]
    assert logits[0].isnan().all()
    assert logits[1].isfinite().all()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hidden_act": "tanh"}, "hidden_act is 'tanh'"),
        ({"attention_bias": True}, "lack model.layers.0.self_attn.q_proj.bias"),
        ({"model_type": "mixtral"}, "model_type is 'mixtral'"),
        ({"model_type": "unheard_of"}, "unheard_of"),
        ({"hidden_size": "wide"}, "hidden_size"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "quantization_config"),
        ({"num_hidden_layers": 4}, "lack model.layers.3."),
    ],
)
def test_models_it_cannot_compute_are_refused(byte_bundle, tmp_path, change, said):
    folder = tmp_path / "target"
    shutil.copytree(byte_bundle.part("target"), folder)
    config(**change)(folder)
    with pytest.raises(BundleError, match=said):
        Llama.load(folder, torch.float32, CPU)
