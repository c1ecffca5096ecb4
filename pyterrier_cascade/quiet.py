"""Loading and saving without the library's own messages."""

import contextlib


@contextlib.contextmanager
def quiet():
    """Silences transformers' bars and its report on missing weights, which is put in the user's terms."""
    from transformers.utils import logging

    verbosity, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bar:
            logging.enable_progress_bar()
