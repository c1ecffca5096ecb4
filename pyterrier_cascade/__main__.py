"""The command line: ``python -m pyterrier_cascade --help``."""

import argparse
import contextlib
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
USERS = (ValueError, KeyError, OSError, ImportError, NotImplementedError, FloatingPointError)
"""The errors that speak to users; others are faults of the program."""
UNEXPECTED, REFUSED, INTERRUPTED, BROKEN_PIPE = 1, 2, 130, 141


class Parser(argparse.ArgumentParser):
    """A parser whose errors are raised, to be told like all others."""

    def __init__(self, **options):
        super().__init__(**options, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter)

    def error(self, message: str) -> NoReturn:
        """Raises what is wrong with the arguments."""
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
        one.set_defaults(act=command.run)
    return whole


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code: data goes to standard output, and everything else to standard error.

    Args:
        argv: The arguments; those of the process unless given.
    """
    argv = sys.argv[1:] if argv is None else argv
    out = sys.stdout
    try:
        options = parser().parse_args(argv)
        # What other libraries print is no data.
        with contextlib.redirect_stdout(sys.stderr), _plain_warnings():
            if hasattr(out, "reconfigure"):
                out.reconfigure(encoding="utf-8", newline="\n")
            options.act(options, out)
            out.flush()
    except SystemExit as end:
        return end.code
    except BrokenPipeError:
        # Python flushes once more when it ends, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
        return BROKEN_PIPE
    except KeyboardInterrupt:
        _say("interrupted")
        return INTERRUPTED
    except Exception as error:
        if "--debug" in argv:
            traceback.print_exc()
        if isinstance(error, USERS):
            _say(f"error: {_told(error)}")
            return REFUSED
        _say(f"error: unexpected {type(error).__name__}: {_told(error)} (--debug shows where)")
        return UNEXPECTED
    return 0


def _told(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    # The text of a KeyError is quoted.
    message = error.args[0] if isinstance(error, KeyError) and error.args else error
    return " ".join(str(message).split())


@contextlib.contextmanager
def _plain_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *where, **more: _say(f"warning: {_told(message)}")
        yield


def _say(message: str) -> None:
    # A progress bar that stands there makes room for it.
    tqdm = sys.modules.get("tqdm")
    (tqdm.tqdm.write if tqdm else print)(f"{NAME}: {message}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
