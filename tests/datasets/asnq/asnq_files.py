"""Invented files in the formats that ASNQ is built from."""

import gzip
import json


def nq_record(text, long=(), short=(), qid=1, query="who is it", yes_no="NONE"):
    """A question of the Natural Questions: `long` and `short` have, for each annotator, word ranges of `text`."""
    tokens = [{"token": t.replace("_", " "), "html_token": t.startswith("<")} for t in text.split()]
    none = {"start_token": -1, "end_token": -1}
    annotations = [
        {
            "long_answer": span(long[n]) if n < len(long) and long[n] else none,
            "short_answers": [span(s) for s in (short[n] if n < len(short) else [])],
            "yes_no_answer": yes_no,
        }
        for n in range(max(len(long), len(short), 1))
    ]
    return {"example_id": qid, "question_text": query, "document_tokens": tokens, "annotations": annotations}


def span(pair):
    return {"start_token": pair[0], "end_token": pair[1]}


def write_lines(path, lines):
    data = "".join(f"{line}\n" for line in lines).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return path


def few_questions(n, first=0):
    """JSON lines of questions whose pages have four sentences with the labels 4, 3, 2, 1."""
    text = "<P> Ada wrote it . It was long . </P> <P> So Ada said . Nobody knows . </P>"
    return [
        json.dumps(nq_record(text, [(0, 10)], [[(1, 2)]], qid=q, query=f"who wrote {q}"))
        for q in range(first, first + n)
    ]


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
