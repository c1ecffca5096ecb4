import re
import subprocess
import sys
from pathlib import Path

QUICKSTART = Path(__file__).parents[2] / "examples" / "quickstart.py"


def test_the_quickstart_runs_on_any_encoder(tmp_path):
    import tiny

    # Few positions, few tokens: the text is cut short and the run with it.
    model = tiny.save(tmp_path, outputs=None, max_position_embeddings=32)
    done = subprocess.run(
        [sys.executable, str(QUICKSTART), "--model", model], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^ *(bm25|bm25 >> reranker|reranker) +([\d. ]+)$", done.stdout, re.M)
    assert [name for name, _ in rows] == ["bm25", "bm25 >> reranker", "bm25", "reranker"]
    for name, numbers in rows:
        _, _, _, cost, milliseconds = map(float, numbers.split())
        assert cost == (1 if "reranker" in name else 0) and milliseconds > 0
