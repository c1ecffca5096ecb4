import re
import subprocess
import sys
from pathlib import Path

import pytest

QUICKSTART = Path(__file__).parents[2] / "examples" / "quickstart.py"


@pytest.mark.slow
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
    rows = re.findall(r"^ *(bm25|cross-encoder|full|certified|alpha=0.4|stages) +([\d. ]+)$", done.stdout, re.M)
    assert [name for name, _ in rows] == ["bm25", "cross-encoder", "full", "certified", "alpha=0.4", "stages"]
    measured = {name: [float(number) for number in numbers.split()] for name, numbers in rows}
    assert all(numbers[-1] > 0 for numbers in measured.values())
    costs = {name: numbers[3] for name, numbers in measured.items()}
    assert costs["bm25"] == 0 and costs["full"] == costs["cross-encoder"] == 1
    # With nothing dropped, the cascade is the cross-encoder that it was made of, but for the order of equal scores.
    assert measured["full"][:3] == pytest.approx(measured["cross-encoder"][:3], abs=0.02)
    # Of 20 candidates 12, 8, 5 and 3 go on at alpha=.4.
    assert costs["alpha=0.4"] == pytest.approx((2 * 20 + 12 + 8 + 5 + 3) / 120, abs=0.005)
    assert costs["stages"] == pytest.approx((2 * 20 + 12 + 5 * 3) / 120, abs=0.005)
    assert costs["certified"] <= 1
    assert re.search(r"^   (With 95% confidence|No setting).* of the layers", done.stdout, re.M)
    assert re.search(r"^ +layer +correlation +top1 +ndcg\n +2 ", done.stdout, re.M)
    assert (tmp_path / "plot.png").stat().st_size > 10_000
