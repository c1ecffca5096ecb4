"""Candidates leave on the way through the layers: the rule, its settings, stages, traces and sweeps of any ranker."""
