"""TANDA: transfer to answer selection on a large general set, then adapt to the target (TA)."""
