"""The Cascade Transformer: one encoder, scoring heads at several layers, fewer candidates after each (CT)."""
