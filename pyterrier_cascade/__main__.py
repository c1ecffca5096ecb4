"""Runs the command line: ``python -m pyterrier_cascade --help``."""

import sys

from pyterrier_cascade.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
