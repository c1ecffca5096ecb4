"""Encoders as tensors: pairs of texts in, hidden states and scores out. Knows neither pandas nor PyTerrier."""
