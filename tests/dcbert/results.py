"""Comparing results frames."""

import pandas as pd


def by_pair(results):
    return results.set_index(["qid", "docno"])["score"].sort_index()


def assert_same_scores(one, other, atol):
    pd.testing.assert_series_equal(by_pair(one), by_pair(other), check_exact=False, atol=atol, rtol=0)
