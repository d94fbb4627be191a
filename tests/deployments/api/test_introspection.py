"""The table in force, as it is shown."""

import numpy as np

from deployments.api.introspection import table_summary
from deployments.artifacts import served_table


def test_how_the_service_differs_from_what_was_measured_is_shown_by_method(config):
    table = served_table(config)
    learned = {
        "step_ratio": np.arange(len(table.methods)) + 1.5,
        "batch_ratio": np.arange(len(table.methods)) + 0.5,
        "prefill_ratio": np.arange(len(table.methods)) + 2.5,
        "profile_share": np.arange(len(table.methods)) / 20,
    }
    shown = table_summary(table.with_live(**learned))
    for array, values in learned.items():
        assert shown[f"live_{array}"] == dict(zip(table.methods, values.tolist(), strict=True))
