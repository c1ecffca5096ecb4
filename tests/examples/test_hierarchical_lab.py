import re
import subprocess
import sys
from pathlib import Path

import pytest

LAB = Path(__file__).parents[2] / "examples" / "hierarchical_lab.py"


@pytest.mark.slow
def test_the_lab_runs(tmp_path):
    pytest.importorskip("matplotlib")
    plots = [tmp_path / "attention.png", tmp_path / "curves.png"]
    done = subprocess.run(
        [sys.executable, str(LAB), "--questions", "20", "--epochs", "2", "--plot", plots[0], "--curves", plots[1]],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^ *(bm25|CA\(list\)|PRI\(list\)) +([\d.]+) +([\d.]+) +([\d.]+)$", done.stdout, re.M)
    assert [row[0] for row in rows] == ["bm25", "CA(list)", "PRI(list)"]
    assert all(0 < float(value) <= 1 for row in rows for value in row[1:])
    assert "What each word of the question looks at most" in done.stdout
    assert all(plot.stat().st_size > 5_000 for plot in plots)
