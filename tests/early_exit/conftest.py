"""The saved cascade of these tests."""

from tests.cascades import cascade, encoder, saved  # noqa: F401
