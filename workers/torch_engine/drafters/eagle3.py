"""EAGLE-3: features of three of the target's layers, and a head that says the token itself."""

from workers.torch_engine.drafters.feature_drafter import FeatureDrafter
from workers.torch_engine.materials import Materials
from workers.torch_engine.models.heads.eagle3 import Eagle3Head
from workers.torch_engine.registry import register


@register("drafter", "eagle3")
class Eagle3(FeatureDrafter):
    """part: the bundle's part that holds the head."""

    def __init__(self, materials: Materials, *, part: str = "eagle3") -> None:
        super().__init__(Eagle3Head(materials.bundle.part(part), materials.target), materials)
