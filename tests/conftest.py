"""Every run of the suite is the same run: hypothesis draws its examples from the tests' own names."""

import os

from hypothesis import Phase, settings

settings.register_profile("repeatable", derandomize=True, database=None, deadline=None, print_blob=False)
settings.register_profile(
    "no shrinking",
    settings.get_profile("repeatable"),
    phases=[Phase.explicit, Phase.generate],
    report_multiple_bugs=False,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
