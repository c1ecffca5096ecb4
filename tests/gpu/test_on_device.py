"""The tests on a simulated GPU, in a process of their own: what registers the device cannot be undone."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu import sim

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("on_device_*.py"))


@pytest.mark.skipif(sim.missing() is not None, reason=str(sim.missing()))
@pytest.mark.parametrize("which", ["not slow", pytest.param("slow", marks=pytest.mark.slow)])
def test_everything_on_the_simulated_gpu(which):
    how = ["-q", "-n", "0", "-p", "no:cacheprovider", "-m", which]
    command = [sys.executable, "-m", "pytest", *map(str, FILES), *how]
    found = subprocess.run(command, cwd=HERE.parents[1], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout[-8_000:] + found.stderr[-2_000:]
    assert len(FILES) >= 3 and "passed" in found.stdout and "skipped" not in found.stdout
