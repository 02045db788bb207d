"""Settings of the tests: examples that failed are not kept in the folder of the clone."""

from hypothesis import settings

settings.register_profile("sterna", database=None, deadline=None)
settings.load_profile("sterna")
