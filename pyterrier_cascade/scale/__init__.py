"""Beyond one machine: query blocks and shards over a pool of workers."""
