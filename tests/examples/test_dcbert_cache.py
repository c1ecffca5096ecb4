import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "dcbert_cache.py"


@pytest.mark.slow
def test_the_example_runs_on_any_encoder(tmp_path):
    from tests import tiny

    model = tiny.save(tmp_path / "model", outputs=None, max_position_embeddings=64)
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "--model", model, "--folder", str(tmp_path / "made")],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^ *(bm25|cache|cache, int8|late|from texts) +([\d. ]+)$", done.stdout, re.M)
    assert [name for name, _ in rows] == ["bm25", "cache", "cache, int8", "late", "from texts"]
    measured = {name: [float(number) for number in numbers.split()] for name, numbers in rows}
    assert measured["cache"][:3] == measured["from texts"][:3]
    # One joint layer of two, and the question's two layers once for 20 candidates.
    assert measured["cache"][3] == (2 + 20) / 40 and measured["late"][3] == 2 / 40
    assert measured["from texts"][3] == (2 + 20 * 3) / 40
    sizes = [float(size) for size in re.findall(r"([\d.]+) MB$", done.stdout, re.M)]
    assert len(sizes) == 2 and sizes[1] < 0.75 * sizes[0]
