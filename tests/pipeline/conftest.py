"""Jobs of a test's own, as in tests/agent."""

from tests.agent.conftest import jobs, stranger

__all__ = ["jobs", "stranger"]
