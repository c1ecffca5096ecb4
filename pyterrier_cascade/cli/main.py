"""The parser of all commands, their exit codes, and their errors in one line."""

import argparse
import contextlib
import errno
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import NoReturn

from pyterrier_cascade import __version__

NAME = "pyterrier_cascade"
COMMANDS = ("train", "rerank", "encode", "sweep", "info")
FOR_USERS = (ValueError, KeyError, OSError, ImportError, NotImplementedError, FloatingPointError)
"""The errors whose messages are written for users; all others are faults of the program."""
UNEXPECTED, REFUSED, INTERRUPTED, BROKEN_PIPE = 1, 2, 130, 141
"""The exit codes besides 0."""


class Parser(argparse.ArgumentParser):
    """A parser that raises its errors, so that they are reported like all others."""

    def __init__(self, **options):
        super().__init__(**options, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter)

    def error(self, message: str) -> NoReturn:
        """Raises a ValueError with the fault in the arguments."""
        raise ValueError(f"{message} (see: {self.prog} --help)")


def parser() -> Parser:
    """Returns the parser of all commands."""
    whole = Parser(prog=f"python -m {NAME}", description="Neural rerankers that save work, on the command line.")
    whole.add_argument("--version", action="version", version=f"{NAME} {__version__}")
    commands = whole.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        command = import_module(f"{NAME}.cli.{name}")
        one = commands.add_parser(
            name,
            help=command.HELP,
            description=command.HELP[0].upper() + command.HELP[1:] + ".",
            epilog=f"example:\n  python -m {NAME} {name} {command.EXAMPLE}",
        )
        command.add_arguments(one)
        one.add_argument("--quiet", action="store_true", help="show no progress")
        one.add_argument("--debug", action="store_true", help="show where an error comes from")
        # Not `run`, which is the name of an option.
        one.set_defaults(run_command=command.run)
    return whole


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code.

    Data are written to standard output; progress, warnings and errors are written to standard error.

    Args:
        argv: The arguments; those of the process unless given.
    """
    argv = sys.argv[1:] if argv is None else argv
    # A process may be started without standard output.
    out = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    try:
        options = parser().parse_args(argv)
        # Other libraries print messages, which must not be mixed with the data.
        with contextlib.redirect_stdout(sys.stderr), _warnings_in_one_line():
            if hasattr(out, "reconfigure"):
                out.reconfigure(encoding="utf-8", newline="\n")
            options.run_command(options, out)
            out.flush()
    except SystemExit as end:
        return end.code
    except BrokenPipeError:
        # Python flushes standard output once more when it ends, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
        return BROKEN_PIPE
    except KeyboardInterrupt:
        _report("interrupted")
        return INTERRUPTED
    except Exception as error:
        if "--debug" in argv:
            traceback.print_exc()
        if isinstance(error, FOR_USERS):
            _report(f"error: {_message(error)}")
            return REFUSED
        _report(f"error: unexpected {type(error).__name__}: {_message(error)} (--debug shows where)")
        return UNEXPECTED
    return 0


def _message(error: Exception) -> str:
    """Returns the message of an error or a warning in one line."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, OSError) and error.strerror == os.strerror(errno.ENOSPC):
        return "no space is left on the disk of the output, or of another file that is written; make room, start again"
    # Python puts the text of a KeyError into quotation marks.
    message = error.args[0] if isinstance(error, KeyError) and error.args else error
    return " ".join(str(message).split())


@contextlib.contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *where, **more: _report(f"warning: {_message(message)}")
        yield


def _report(message: str) -> None:
    # tqdm writes a line above a progress bar that is on the screen.
    tqdm = sys.modules.get("tqdm")
    (tqdm.tqdm.write if tqdm else print)(f"{NAME}: {message}", file=sys.stderr)
