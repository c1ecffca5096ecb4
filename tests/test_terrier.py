"""The rerankers behind a real Terrier index, in a process of its own: Java starts once per process and stays."""

import json
import os
import shutil
import subprocess
import sys

import pytest

JARS = ("terrier-assemblies-5.11-jar-with-dependencies.jar", "terrier-python-helper-0.0.8.jar")

SCRIPT = """
import gzip, json, re, sys
import pandas as pd
import pyterrier as pt
from ir_measures import AP, P, R, nDCG
from pyterrier_cascade import BM25, Cascade, CrossEncoder

pt.java.mavenresolver.offline()
vaswani, model, work = sys.argv[1:]
text = gzip.open(f"{vaswani}/doc-text.trec.gz", "rt", encoding="utf-8").read()
documents = [
    {"docno": docno, "text": " ".join(body.split())}
    for docno, body in re.findall(r"<DOC>\\s*<DOCNO>(.*?)</DOCNO>(.*?)</DOC>", text, re.S)
]
topics = pt.io.read_topics(f"{vaswani}/query-text.trec", format="trec")
qrels = pt.io.read_qrels(f"{vaswani}/qrels")
index = pt.IterDictIndexer(f"{work}/index", meta={"docno": 20, "text": 4096}).index(documents)
terrier = pt.terrier.Retriever(index, wmodel="BM25")
ours = BM25.from_frame(pd.DataFrame(documents))

measures = [AP, P @ 10, nDCG @ 10, R @ 100, R @ 1000]
table = pt.Experiment({"terrier": terrier, "ours": ours}, topics, qrels, measures).set_index("name")

# The same rerankers behind both, words and neurons; the second question is full of Terrier's query language.
asked = pd.DataFrame({"qid": ["a", "b"], "query": ["microwave dielectric", 'noise/signal: "klystron" ^2 -- (what?)']})
reranker = ours.scorer() >> CrossEncoder.from_pretrained(model, token_budget=4096)
behind_ours = ours % 20 >> reranker
behind_terrier = (
    pt.rewrite.tokenise() >> terrier % 20 >> pt.rewrite.reset() >> pt.text.get_text(index, "text") >> reranker
)
results = {}
for name, pipeline in {"ours": behind_ours, "terrier": behind_terrier, "compiled": behind_terrier.compile()}.items():
    frame = pipeline(asked)
    texts = {document["docno"]: document["text"] for document in documents}
    results[name] = {
        "queries": sorted(set(frame["query"])),
        "sizes": frame.groupby("qid").size().to_dict(),
        "ranks": [block["rank"].tolist() for _, block in frame.groupby("qid")],
        "texts_are_right": bool((frame["text"] == frame["docno"].map(texts)).all()),
        "scores": {f"{q} {d}": s for q, d, s in zip(frame["qid"], frame["docno"], frame["score"], strict=True)},
    }

cascade = Cascade.from_pretrained(model, layers=(1, 2))
behind_terrier = pt.rewrite.tokenise() >> terrier % 20 >> pt.rewrite.reset() >> pt.text.get_text(index, "text")
columns = ["qid", "docno", "rank", "exit_layer"]
cascades = {
    "alpha": behind_terrier >> cascade(alpha=0.4, exited="drop"),
    "stages": behind_terrier >> cascade[1] % 0.6 >> cascade[2],
    "fused": (behind_terrier >> cascade[1] % 0.6 >> cascade[2]).compile(),
}
cascades = {name: pipeline(asked)[columns].values.tolist() for name, pipeline in cascades.items()}
found = {"documents": len(documents), "table": table.to_dict("index"), "results": results, "cascades": cascades}
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def vaswani(shared_data, shared_java, shared_models, tmp_path_factory):
    if shutil.which("java") is None:
        pytest.skip(f"needs shared data and Java: no `java` on the path to run {shared_java} with")
    work = tmp_path_factory.mktemp("terrier")
    for jar in JARS:
        (work / jar).symlink_to(shared_java / jar)
    versions = {"PYTERRIER_HOME": str(work), "TERRIER_VERSION": "5.11", "TERRIER_HELPER_VERSION": "0.0.8"}
    command = [sys.executable, "-c", SCRIPT, str(shared_data / "vaswani"), str(shared_models / "bert-tiny"), str(work)]
    done = subprocess.run(command, env=os.environ | versions, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_terrier_is_the_real_one(vaswani):
    assert vaswani["documents"] == 11429
    expected = {"AP": 0.296517, "P@10": 0.352688, "nDCG@10": 0.446609, "R@100": 0.599046, "R@1000": 0.934607}
    assert {name: vaswani["table"]["terrier"][name] for name in expected} == pytest.approx(expected, abs=1e-4)


def test_our_retriever_keeps_up_without_a_stemmer(vaswani):
    assert vaswani["table"]["ours"]["AP"] > 0.2


def test_the_same_reranker_works_behind_terrier(vaswani):
    for name in ("ours", "terrier", "compiled"):
        result = vaswani["results"][name]
        assert result["queries"] == ["microwave dielectric", 'noise/signal: "klystron" ^2 -- (what?)']
        assert result["sizes"] == {"a": 20, "b": 20}
        assert result["ranks"] == [list(range(20))] * 2
        assert result["texts_are_right"]
    assert vaswani["results"]["terrier"] == vaswani["results"]["compiled"]
    ours, terrier = (vaswani["results"][name]["scores"] for name in ("ours", "terrier"))
    assert len(common := ours.keys() & terrier.keys()) > 10
    assert {pair: ours[pair] for pair in common} == pytest.approx({pair: terrier[pair] for pair in common}, abs=1e-5)
    assert len(set(ours.values())) > 20


def test_a_cascade_works_behind_terrier(vaswani):
    found = vaswani["cascades"]
    assert found["alpha"] == found["stages"] == found["fused"]
    assert [(qid, rank, layer) for qid, _, rank, layer in found["fused"]] == [
        (qid, rank, 2) for qid in ("a", "b") for rank in range(12)
    ]
