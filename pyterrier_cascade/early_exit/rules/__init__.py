"""The pruning rules, one file each."""
