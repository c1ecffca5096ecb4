import re
import subprocess
import sys
from pathlib import Path

import pytest

QUICKSTART = Path(__file__).parents[2] / "examples" / "quickstart.py"


def test_the_quickstart_runs_on_any_encoder(tmp_path):
    from tests import tiny

    pytest.importorskip("matplotlib")
    # Few positions, few tokens: the text is cut short and the run with it.
    model = tiny.save(tmp_path / "model", layers=6, outputs=None, max_position_embeddings=32)
    done = subprocess.run(
        [sys.executable, str(QUICKSTART), "--model", model, "--plot", str(tmp_path / "plot.png")],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^ *(bm25|full|alpha=0.\d|stages|chosen) +([\d. ]+)$", done.stdout, re.M)
    assert [name for name, _ in rows] == ["bm25", "full", "alpha=0.3", "alpha=0.4", "alpha=0.5", "stages", "chosen"]
    costs = {}
    for name, numbers in rows:
        _, _, _, costs[name], milliseconds = map(float, numbers.split())
        assert milliseconds > 0
    assert costs["bm25"] == 0 and costs["full"] == 1
    # Of 20 candidates 14, 10, 7 and 5 go on at alpha=.3, 12, 8, 5 and 3 at .4, 10, 5, 3 and 2 at .5.
    assert costs["alpha=0.3"] == pytest.approx((2 * 20 + 14 + 10 + 7 + 5) / 120, abs=0.005)
    assert costs["alpha=0.4"] == pytest.approx((2 * 20 + 12 + 8 + 5 + 3) / 120, abs=0.005)
    assert costs["alpha=0.5"] == pytest.approx((2 * 20 + 10 + 5 + 3 + 2) / 120, abs=0.005)
    assert costs["stages"] == pytest.approx((2 * 20 + 12 + 5 * 3) / 120, abs=0.005)
    assert costs["chosen"] <= 0.61
    assert (tmp_path / "plot.png").stat().st_size > 10_000
