"""Tensors only: texts become tokens, tokens become states, and states become scores, layer by layer."""
