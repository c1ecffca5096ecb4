import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import tiny

LAB = Path(__file__).parents[2] / "examples" / "tanda_lab.py"


@pytest.mark.slow
def test_the_lab_runs_on_any_encoder(tmp_path):
    pytest.importorskip("matplotlib")
    model = tiny.save(tmp_path / "model", outputs=None, max_position_embeddings=32)
    done = subprocess.run(
        [sys.executable, str(LAB), "--model", model, "--plot", str(tmp_path / "plot.png")],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^(transfer only|TANDA|target only)? +(-|clean|20% flipped) +([\d.]+) +([\d.]+) +([\d.]+)$",
                      done.stdout, re.M)  # fmt: skip
    assert [row[:2] for row in rows] == [
        ("transfer only", "-"), ("TANDA", "clean"), ("", "20% flipped"), ("target only", "clean"), ("", "20% flipped"),
    ]  # fmt: skip
    # A tiny encoder of random weights may put no positive first, but it ranks them somewhere.
    assert all(0 < float(value) <= 1 for row in rows for value in row[2:4])
    assert all(0 <= float(row[4]) <= float(row[3]) for row in rows)
    assert re.search(r"^Noise: 2\d\d of the target's 1?\d{3} training labels are flipped\.$", done.stdout, re.M)
    assert (tmp_path / "plot.png").stat().st_size > 10_000
