"""How long an input may be: an encoder's positions are a limit, a tokenizer's own number is a default."""

from typing import Any

from pyterrier_cascade.encoder.families import position_limit

USUAL_LENGTH = 512
"""The most tokens of an input by default, where neither the encoder nor its tokenizer says less."""


def length_limit(config: Any, tokenizer: Any) -> int:
    """Returns the most tokens that an input may have: the encoder's positions, or else the tokenizer's number.

    Args:
        config: The configuration of the encoder.
        tokenizer: Its tokenizer.
    """
    return position_limit(config) or tokenizer.model_max_length


def default_length(config: Any, tokenizer: Any) -> int:
    """Returns the most tokens of an input by default: the smallest of 512, the tokenizer's number and the positions.

    A tokenizer's number is often the length of the training. The encoder can read more where it is asked to.

    Args:
        config: The configuration of the encoder.
        tokenizer: Its tokenizer.
    """
    return min(USUAL_LENGTH, tokenizer.model_max_length, length_limit(config, tokenizer))
