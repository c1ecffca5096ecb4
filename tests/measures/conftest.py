"""The saved cascade of the measures of cost."""

from tests.cascades import cascade, encoder, saved  # noqa: F401
