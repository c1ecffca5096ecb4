"""Hierarchical ranking: one compare-aggregate backbone, and point, pair and list objectives on it (HR)."""
