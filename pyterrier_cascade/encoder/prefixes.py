"""The beginnings of long texts that have the same first tokens as the whole texts.

A tokenizer takes about 160 bytes for each character of a text, and an input needs the first tokens only. Most
tokenizers divide a text into words before anything else, and a word ends where a single space stands between two
letters or digits:

- Normalisation changes nothing across such a space. Unicode's forms have a boundary before it, and the other
  normalisers replace single characters or runs of white space.
- The words before it are found without what follows, and the model reads each word by itself.
- Special tokens inside the text contain no space, so none is cut.

So the tokens of the text before the space are the first tokens of the whole text. Where one of these is not known of a
tokenizer, its texts are not cut.
"""

import json
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

_SPACE = re.compile(r"[^\W_] [^\W_]")
"""A single space between two letters or digits."""

_NORMALIZERS = {"BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Nmt", "Precompiled", "Prepend", "Strip"}
_NORMALIZERS |= {"StripAccents"}
_AT_SPACES = {"BertPreTokenizer", "ByteLevel", "Metaspace", "Whitespace", "WhitespaceSplit"}
_WITHIN_WORDS = {"Digits", "Punctuation"}


def prefix(text: str, least: int) -> str:
    """Returns the text up to its first safe space after ``least`` characters, or the whole text without such a space.

    Args:
        text: A text.
        least: The least number of characters.
    """
    for found in _SPACE.finditer(text, least):
        # The decomposition of a few letters ends with something else, such as an accent that may be dropped.
        if unicodedata.normalize("NFKD", text[found.start()])[-1].isalnum():
            return text[: found.start() + 1]
    return text


def has_prefixes(tokenizer: Any) -> bool:
    """Returns whether the tokens of a prefix are known to be the first tokens of the whole text.

    Args:
        tokenizer: A fast Hugging Face tokenizer.
    """
    parts, special = tokenizer.backend_tokenizer, tokenizer.added_tokens_decoder.values()
    return (
        tokenizer.truncation_side == "right"
        and not any(char.isspace() for token in special for char in token.content)
        and all(map(_keeps_spaces, _components(parts.normalizer, "normalizers")))
        and _divides_at_spaces(_components(parts.pre_tokenizer, "pretokenizers"))
    )


def _components(component: Any, of_sequence: str) -> list[Mapping[str, Any]]:
    """Returns a component of a tokenizer as JSON describes it; a sequence as its parts."""
    if component is None:
        return []
    found = json.loads(component.__getstate__())
    return found[of_sequence] if found["type"] == "Sequence" else [found]


def _keeps_spaces(normalizer: Mapping[str, Any]) -> bool:
    """Returns whether a normaliser leaves a space between letters and what is beside it alone."""
    if normalizer["type"] != "Replace":
        return normalizer["type"] in _NORMALIZERS
    (kind, pattern), *_ = normalizer["pattern"].items()
    if kind == "Regex":
        return pattern == " {2,}"
    return not any(char == " " or char.isalnum() for char in pattern)


def _divides_at_spaces(pre_tokenizers: list[Mapping[str, Any]]) -> bool:
    """Returns whether texts are divided into words at spaces, before anything else looks at more than a word."""
    for one in pre_tokenizers:
        if one["type"] in _AT_SPACES and one.get("use_regex", True) and one.get("split", True):
            return True
        if one["type"] not in _WITHIN_WORDS:
            return False
    return False
