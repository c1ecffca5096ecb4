"""Documents on disk: the states of their tokens in shards, an index of their names, and one way to write anything.

The store knows documents, entries, token states and names. It knows no model.
"""
