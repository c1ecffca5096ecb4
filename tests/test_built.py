"""What users get: types, a wheel and an sdist that install by themselves."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pyterrier_cascade

PROJECT = Path(__file__).parents[1]
PACKAGE = PROJECT / "pyterrier_cascade"
FOLDERS = ("pyterrier_cascade", "examples", "docs")
FILES = ("setup.py", "pyproject.toml", "README.rst", "LICENSE", "MANIFEST.in")


@pytest.mark.slow
def test_a_type_checker_knows_the_public_names(tmp_path):
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", "--ignore-missing-imports"]
    command += ["--warn-unused-ignores", "--cache-dir", str(tmp_path), "tests/typed/public_use.py"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=PROJECT)
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """Wheel and sdist, built of a copy, for building writes beside the code."""
    source, out = (tmp_path_factory.mktemp(name) for name in ("source", "dist"))
    for name in FOLDERS:
        shutil.copytree(PROJECT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "pages"))
    for name in FILES:
        shutil.copy(PROJECT / name, source)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.mark.parametrize("kind", ["*.whl", "*.tar.gz"])
def test_what_is_built_installs_into_an_empty_place(built, tmp_path, kind):
    (package,) = built.glob(kind)
    assert package.stat().st_size < 1_000_000
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--no-build-isolation"]
    done = subprocess.run([*command, "--target", str(tmp_path / "site"), str(package)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    installed = tmp_path / "site" / "pyterrier_cascade"
    ours = {str(path.relative_to(PROJECT / "pyterrier_cascade")) for path in (PROJECT / "pyterrier_cascade").rglob("*")
            if path.is_file() and path.suffix != ".pyc"}  # fmt: skip
    there = {str(path.relative_to(installed)) for path in installed.rglob("*") if path.is_file()}
    assert {name for name in there if not name.endswith(".pyc")} == ours
    # Without any of its dependencies.
    script = "import sys; sys.path[:0] = sys.argv[1:]; import pyterrier_cascade as p; print(p.__version__, p.__file__)"
    command = [sys.executable, "-I", "-S", "-c", script, str(tmp_path / "site")]
    found = subprocess.run(command, capture_output=True, text=True)
    assert found.stdout.split() == [pyterrier_cascade.__version__, str(installed / "__init__.py")], found.stderr
