"""The parts of a method, checked to fit together."""

from schemas import MethodSpec
from workers.torch_engine import registry
from workers.torch_engine.build_context import BuildContext
from workers.torch_engine.interfaces import Plan, Verifier


class Method:
    """One named method with its parts. Raises ValueError for parts that do not fit together."""

    def __init__(self, spec: MethodSpec, context: BuildContext) -> None:
        self.spec = spec
        self.name = spec.name
        self.guard = context.guard
        settings = spec.settings
        self.plan = Plan(
            drafter=context.drafter(spec.drafter, settings.get("drafter", {})),
            tree=registry.build("tree", spec.tree, context, settings.get("tree", {})),
            stop=registry.build("stop", spec.stop, context, settings.get("stop", {})),
        )
        self.verifier: Verifier = registry.build(
            "verifier", spec.verifier, context, settings.get("verifier", {})
        )
        if self.verifier.needs_distribution and not self.plan.drafter.has_distribution:
            raise ValueError(
                f"method {spec.name!r}: verifier {spec.verifier!r} needs a drafter with a "
                f"distribution, which {spec.drafter!r} has not"
            )
        drawn = self.plan.tree.samples and self.plan.drafter.has_distribution
        if drawn and not self.verifier.takes_sampled:
            raise ValueError(
                f"method {spec.name!r}: verifier {spec.verifier!r} takes chosen tokens only, and "
                f"the tree {spec.tree!r} draws them from what {spec.drafter!r} gives above "
                "temperature 0; use rejection, or for trees multi_step"
            )
        if not self.verifier.takes_trees and spec.tree != "chain":
            raise ValueError(
                f"method {spec.name!r}: verifier {spec.verifier!r} takes chains only, not the tree "
                f"{spec.tree!r}; use one_hot or, where children are sampled, multi_step"
            )
