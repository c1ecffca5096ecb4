"""All commands: streams, exit codes, errors in one line, help without torch."""

import os
import subprocess
import sys
import warnings

import pytest

from pyterrier_cascade import CrossEncoder
from pyterrier_cascade.cli import info
from pyterrier_cascade.cli.main import COMMANDS, main
from tests.cli.lists import CANDIDATES

PROGRAM = [sys.executable, "-m", "pyterrier_cascade"]


def test_help_is_short_and_needs_nothing_heavy():
    heavy = ("torch", "transformers", "pandas", "numpy", "pyterrier")
    code = (
        "import sys; from pyterrier_cascade.cli.main import main\n"
        f"codes = [main([*command, '--help']) for command in ([], *([name] for name in {COMMANDS}))]\n"
        f"print(codes, [name for name in {heavy} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr == "[0, 0, 0, 0, 0, 0] []\n"
    assert done.stdout.count("example:\n  python -m pyterrier_cascade ") == len(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_example_is_one_that_the_parser_takes(cli, name):
    import shlex

    from pyterrier_cascade.cli.main import parser

    (example,) = (line for line in cli(name, "--help").lines if line.startswith("  python -m"))
    assert len(cli(name, "--help").lines) < 50
    words = shlex.split(example.partition(">")[0])
    assert parser().parse_args(words[3:]).command == name


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["cook"], "invalid choice: 'cook'"),
        (["info"], "the following arguments are required: PATH"),
        (["info", "x", "--jso"], "unrecognized arguments: --jso"),
        (["encode", "x", "--output", "y", "--shards", "3-1"], "argument --shards: '3-1' is not like 0-3,7"),
        (["rerank", "x", "--run", "a", "--candidates", "b"], "not allowed with argument --run"),
    ],
)
def test_errors_of_usage(cli, argv, message):
    done = cli(*argv)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("pyterrier_cascade: error: ") and done.err.count("\n") == 1
    assert message in done.err and "--help)" in done.err


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (ValueError("two\n  lines"), 2, "error: two lines"),
        (KeyError("no 'x'"), 2, "error: no 'x'"),
        (FileNotFoundError(2, "No such file or directory", "a.run"), 2, "error: a.run: No such file or directory"),
        (PermissionError("cannot write"), 2, "error: cannot write"),
        (
            OSError(28, "No space left on device"),
            2,
            "error: no space is left on the disk of the output, or of another "
            "file that is written; make room, start again",
        ),
        (ImportError("needs x: pip install x"), 2, "error: needs x: pip install x"),
        (FloatingPointError("the loss is nan"), 2, "error: the loss is nan"),
        (TypeError("a fault"), 1, "error: unexpected TypeError: a fault (--debug shows where)"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_exit_codes(cli, monkeypatch, error, code, told):
    def fail(path):
        print("a library that prints")
        raise error

    monkeypatch.setattr(info, "described", fail)
    done = cli("info", "x")
    assert (done.code, done.out) == (code, "")
    assert done.err == f"a library that prints\npyterrier_cascade: {told}\n"
    with_trace = cli("info", "x", "--debug").err
    assert ("Traceback" in with_trace and "in fail" in with_trace) == isinstance(error, Exception)
    assert with_trace.endswith(f"pyterrier_cascade: {told}\n")


def test_warnings_are_one_line(cli, monkeypatch):
    def warn(path):
        warnings.warn("mind\nthe gap", stacklevel=1)
        return {"kind": "é"}

    monkeypatch.setattr(info, "described", warn)
    before = warnings.showwarning
    done = cli("info", "x")
    assert (done.code, done.out, done.err) == (0, "kind\té\n", "pyterrier_cascade: warning: mind the gap\n")
    assert warnings.showwarning is before


def test_in_a_pipe(tiny_bert, lists, tmp_path):
    """The output is UTF-8, whatever the encoding of the system, and has the scores of the ranker."""
    argv = ["rerank", tiny_bert, "--run", "-", "--topics", lists.topics, "--docs", lists.docs]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run(
        [*PROGRAM, *argv], input=lists.run_gz.read_bytes(), capture_output=True, env=environment, timeout=120
    )
    assert done.returncode == 0, done.stderr.decode()
    expected = CrossEncoder.from_pretrained(tiny_bert)(CANDIDATES)
    rows = [line.split(" ") for line in done.stdout.decode("utf-8").splitlines()]
    assert [(row[0], row[2], int(row[3]), float(row[4])) for row in rows] == list(
        expected[["qid", "docno", "rank", "score"]].itertuples(index=False, name=None)
    )
    assert b"reranking: " in done.stderr and b"Traceback" not in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX pipes")
def test_a_broken_pipe_ends_quietly(tmp_path):
    (tmp_path / "plan.json").write_text("{}")
    # Python flushes its buffer at the end, and would complain then.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([*PROGRAM, "info", tmp_path], env=environment, **pipes) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


@pytest.mark.skipif(os.name != "posix", reason="needs a shell that closes a stream")
@pytest.mark.parametrize("end", [">&-", "| head -1", "| true"])
def test_a_closed_output_ends_quietly(tmp_path, end):
    (tmp_path / "plan.json").write_text("{}")
    command = f"'{sys.executable}' -m pyterrier_cascade info '{tmp_path}' {end}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is full")
def test_a_full_disk_is_said(tmp_path):
    (tmp_path / "plan.json").write_text("{}")
    with open("/dev/full", "w") as full:
        done = subprocess.run([*PROGRAM, "info", tmp_path], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("pyterrier_cascade: error: no space is left on the disk of the output")


def test_the_process_has_the_exit_code():
    done = subprocess.run([*PROGRAM, "info", "./nowhere"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "pyterrier_cascade: error: there is no folder './nowhere'\n"


def test_the_version(capsys):
    from pyterrier_cascade import __version__

    assert main(["--version"]) == 0 and capsys.readouterr().out == f"pyterrier_cascade {__version__}\n"
