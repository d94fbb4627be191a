"""EAGLE-3: a head that reads three of the target's layers and predicts tokens."""

from workers.torch_engine.drafters.feature_drafter import FeatureDrafter
from workers.torch_engine.materials import Materials
from workers.torch_engine.models.heads.eagle3 import Eagle3Head, capture_layers
from workers.torch_engine.registry import register


@register("drafter", "eagle3")
class Eagle3(FeatureDrafter):
    """Load the head. part: the bundle's part that holds it."""

    def __init__(self, materials: Materials, *, part: str = "eagle3") -> None:
        growing = part in materials.bundle.growing
        captures = capture_layers(materials.target.layer_count) if growing else None
        super().__init__(Eagle3Head, part, materials, captures)
