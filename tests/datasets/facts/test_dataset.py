import pyterrier as pt


def test_splits_and_seeds():
    sizes = {}
    for split in ("train", "dev", "test"):
        dataset = pt.get_dataset(f"as2:facts/{split}")
        candidates = dataset.get_candidates()
        assert list(candidates.columns)[:5] == ["qid", "query", "docno", "text", "label"]
        assert candidates.groupby("qid")["label"].agg(["min", "max"]).eq([0, 1]).all(axis=None)
        texts = dataset.text_loader().transform(candidates[["docno"]])["text"]
        assert texts.tolist() == candidates["text"].tolist()
        sizes[split] = dataset.get_info()["n_questions"]
    assert sizes["train"] > sizes["test"] > sizes["dev"] > 0
    assert repr(dataset) == "pt.get_dataset('as2:facts/raw/test')"
    other = pt.get_dataset("as2:facts/test", seed=1)
    assert repr(other) == "pt.get_dataset('as2:facts/raw/test', seed=1)"
    assert other != dataset and set(other.get_topics()["query"]) != set(dataset.get_topics()["query"])
