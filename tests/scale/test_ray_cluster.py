import os
import subprocess
import sys
import tempfile

import pytest

pytest.importorskip("ray")

SCRIPT = """
import ray
from pyterrier_cascade import RayPool
with RayPool(3, address="127.0.0.1:{port}") as pool:
    print(list(pool.map(str, range(3))), ray.cluster_resources()["CPU"])
"""


def test_a_cluster_that_runs_already_is_used(monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    port = 20_000 + os.getpid() % 10_000
    # Sockets have short names, pytest's folders long ones.
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        command = [os.path.join(os.path.dirname(sys.executable), "ray"), "start", "--head", f"--port={port}"]
        command += ["--num-cpus=3", "--include-dashboard=false", "--temp-dir", folder]
        subprocess.run(command, check=True, capture_output=True)
        try:
            script = SCRIPT.format(port=port)
            found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
            assert found.stdout == "['0', '1', '2'] 3.0\n", found.stderr
        finally:
            # Only this cluster's processes: others may run on the machine.
            subprocess.run(["pkill", "-9", "-f", folder], check=False)
