"""Every run of the suite is the same run: hypothesis draws its examples from the tests' own names."""

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, database=None, deadline=None, print_blob=False)
settings.load_profile("repeatable")
