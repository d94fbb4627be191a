"""Which engines do not obey which parameters."""

import pytest

from schemas import SamplingParams
from workers.methods import METHODS, get_method, refused_field

MIN_P = SamplingParams(temperature=1.0, min_p=0.1)
BIAS = SamplingParams(logit_bias={7: 1.0})


@pytest.mark.parametrize("name", METHODS)
def test_only_what_speculates_in_vllm_refuses(name):
    spec = get_method(name)
    speculates = spec.engine == "vllm" and name != "vllm_naive"
    assert refused_field([spec], MIN_P) == ("min_p" if speculates else None)
    assert refused_field([spec], BIAS) == ("logit_bias" if speculates else None)
    assert refused_field([spec], SamplingParams(temperature=1.0, top_p=0.5)) is None
