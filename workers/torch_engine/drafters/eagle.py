"""EAGLE and EAGLE-2: a head of one layer that predicts the target's next feature."""

from workers.torch_engine.drafters.feature_drafter import FeatureDrafter
from workers.torch_engine.materials import Materials
from workers.torch_engine.models.heads.eagle import EagleHead
from workers.torch_engine.registry import register


@register("drafter", "eagle")
class Eagle(FeatureDrafter):
    """Load the head. part: the bundle's part that holds it."""

    def __init__(self, materials: Materials, *, part: str = "eagle") -> None:
        super().__init__(EagleHead, part, materials)
