"""A drafter that copies what followed the last tokens when they occurred before."""

from workers.drafting.lookup.past import PAST_BYTES
from workers.torch_engine.drafters.adaptive import Adaptive
from workers.torch_engine.materials import Materials
from workers.torch_engine.registry import register


@register("drafter", "suffix")
class Suffix(Adaptive):
    """Draft as many looked-up tokens as bring the batch the most tokens a second.

    least, past_bytes, datastore: see Adaptive.
    """

    chooses = False

    def __init__(
        self,
        materials: Materials,
        *,
        least: float = 0.1,
        past_bytes: int = PAST_BYTES,
        datastore: bool = True,
    ) -> None:
        super().__init__(
            materials, learned="", least=least, past_bytes=past_bytes, datastore=datastore
        )
