"""Ranking on several processes or machines: the workers of a pool take blocks of queries."""
