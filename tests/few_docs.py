"""Five documents to index, and the frames around them."""

import pandas as pd

DOCS = [
    {"docno": "d1", "text": "the cat sat", "title": "ignored"},
    {"docno": "d2", "text": "a cat and a dog dog"},
    {"docno": "d3", "text": ""},
    {"docno": "d4", "text": "sat cat"},
    {"docno": "d5", "text": "Ångström Δελφοί मौसम 東京"},
]
COLUMNS = ["qid", "query", "docno", "text", "score", "rank"]


def topics(*queries, **columns):
    return pd.DataFrame({"qid": [f"q{i}" for i in range(len(queries))], "query": list(queries), **columns})


def docnos(results):
    return results.groupby("qid")["docno"].agg(list).to_dict()
