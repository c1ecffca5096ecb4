"""Small invented files in the shapes of the real ones."""

import json

WIKIQA_HEADER = "QuestionID\tQuestion\tDocumentID\tDocumentTitle\tSentenceID\tSentence\tLabel"


def wikiqa_text(*rows):
    """A file as distributed, CRLF included, of rows (question, sentence, label); the ids are made up from them."""
    lines = [WIKIQA_HEADER]
    for i, (question, sentence, label) in enumerate(rows):
        lines.append(f"Q-{question}\twho is {question} ?\tD1\tSome title\tD1-{i}\t{sentence}\t{label}")
    return "".join(line + "\r\n" for line in lines)


def trecqa_text(*questions):
    """A JSONL file of questions (question, [(sentence, label), ...])."""
    records = [{"question": q, "candidates": [{"sentence": s, "label": y} for s, y in c]} for q, c in questions]
    return "".join(json.dumps(record) + "\n" for record in records)
