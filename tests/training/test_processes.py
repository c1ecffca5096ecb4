"""Training in several processes: what they agree on, and torchrun on two of them, with gloo."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file

from pyterrier_cascade.training.processes import (
    check_alone,
    copy_from_first_process,
    evenly_divisible,
    from_first_process,
    leads,
    warn_if_alone,
)
from tests import tiny

PROJECT = Path(__file__).parents[2]

SCRIPT = """
import os, sys
sys.path[:0] = [{project!r}]
import torch.distributed as dist
from tests.training.questions import DEV, TRAIN
from safetensors.torch import save_file
from pyterrier_cascade import {names}
folder = sys.argv[1]
ranker = {ranker}
ranker.fit_candidates(TRAIN, DEV)
weights = {{name: tensor.contiguous() for name, tensor in ranker.model.loaded.module.state_dict().items()}}
path = os.path.join({out!r}, os.path.basename(folder) + "-rank" + os.environ.get("RANK", "0"))
save_file(weights, path)
ranker.history["dev_map"].dropna().to_csv(path + ".csv")
"""

RANKERS = {
    "cross-encoder": (
        "CrossEncoder, Training",
        "CrossEncoder.from_pretrained({model!r}, training=Training(learning_rate=3e-3, epochs=3, tokens_per_batch=100,"
        " precision='fp32', accumulate=2))",
    ),
    "sampled heads": (
        "Cascade, CascadeTraining",
        "Cascade.from_pretrained({model!r}, layers=(1, 2, 3), training=CascadeTraining(learning_rate=3e-3, "
        "epochs=4, tokens_per_batch=100, precision='fp32', heads='sampled', folder=folder, save_every=5))",
    ),
    "DC-BERT": (
        "DCBERT, DCBertTraining",
        "DCBERT.from_pretrained({model!r}, training=DCBertTraining(learning_rate=3e-3, epochs=1, "
        "tokens_per_batch=100, precision='fp32'))",
    ),
}


def script(tmp_path: Path, kind: str) -> str:
    names, ranker = RANKERS[kind]
    model = tmp_path / "model"
    if not model.exists():
        tiny.save(model, layers=3, outputs=None, max_position_embeddings=64)
    text = SCRIPT.format(project=str(PROJECT), names=names, ranker=ranker.format(model=str(model)), out=str(tmp_path))
    path = tmp_path / "script.py"
    path.write_text(text)
    return str(path)


def torchrun(tmp_path: Path, kind: str, folder: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command += [script(tmp_path, kind), str(tmp_path / folder)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)


def done(run: subprocess.Popen) -> None:
    _, errors = run.communicate(timeout=200)
    assert run.returncode == 0, errors


def ranks(tmp_path: Path, name: str) -> list[dict]:
    """The weights of both processes, which know the same course."""
    first, second = ((tmp_path / f"{name}-rank{rank}.csv").read_text() for rank in (0, 1))
    assert first == second and first.count("\n") > 1
    return [load_file(tmp_path / f"{name}-rank{rank}") for rank in (0, 1)]


def equal(ours: dict, theirs: dict) -> bool:
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("kind", ["cross-encoder", "DC-BERT"])
def test_both_processes_have_the_same_weights(tmp_path, kind):
    done(torchrun(tmp_path, kind, "run"))
    # Fresh heads are drawn in each process: only what was learnt together can be equal.
    assert equal(*ranks(tmp_path, "run"))


@pytest.mark.slow
@pytest.mark.skipif(
    int(transformers.__version__.split(".")[0]) < 5,
    reason="transformers 4 cannot go on in several processes on CPUs: it reads its optimiser to a place named cpu:0",
)
def test_sampled_heads_go_on_after_a_kill_to_the_same_weights(tmp_path):
    done(torchrun(tmp_path, "sampled heads", "whole"))
    killed = torchrun(tmp_path, "sampled heads", "killed")
    end = time.monotonic() + 150
    while not list((tmp_path / "killed").glob("checkpoint-*/trainer_state.json")):
        assert time.monotonic() < end and killed.poll() is None
        time.sleep(0.002)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    assert not (tmp_path / "killed-rank0").exists()
    done(torchrun(tmp_path, "sampled heads", "killed"))
    found = ranks(tmp_path, "whole") + ranks(tmp_path, "killed")
    assert all(equal(found[0], other) for other in found[1:])


@pytest.mark.parametrize(
    ("batches", "n_processes", "expected"),
    [([1, 2, 3, 4, 5], 2, [1, 2, 3, 4, 5, 1]), ([1, 2], 5, [1, 2, 1, 2, 1]), ([1, 2, 3, 4], 2, [1, 2, 3, 4]),
     ([1], 1, [1])],
)  # fmt: skip
def test_every_process_has_as_many_batches(batches, n_processes, expected):
    assert evenly_divisible(batches, n_processes) == expected


def test_alone_a_process_agrees_with_itself():
    assert from_first_process(lambda: 3) == 3
    with pytest.raises(KeyError):
        from_first_process({}.popitem)
    module = torch.nn.Linear(2, 1)
    before = module.weight.clone()
    copy_from_first_process(module)
    assert torch.equal(module.weight, before)


@pytest.mark.parametrize(("rank", "first"), [(None, True), ("0", True), ("1", False)])
def test_the_first_process_leads(monkeypatch, rank, first):
    monkeypatch.delenv("RANK", raising=False)
    if rank is not None:
        monkeypatch.setenv("RANK", rank)
    assert leads() is first


def test_some_trainings_refuse_several_processes(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    check_alone("a HierarchicalRanker")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="a HierarchicalRanker is trained in one process, not in 2: start it"):
        check_alone("a HierarchicalRanker")


def test_a_warning_where_several_processes_were_asked_for(monkeypatch, recwarn):
    warn_if_alone(1)
    monkeypatch.setenv("ACCELERATE_USE_CPU", "True")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    warn_if_alone(2)
    assert not recwarn.list
    with pytest.warns(UserWarning, match="accelerate launch was asked for several processes and started one") as seen:
        warn_if_alone(1)
    assert seen[0].filename == __file__


def test_accelerate_launch_on_cpus_is_found_out(tmp_path):
    command = [sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes=2"]
    command += [script(tmp_path, "cross-encoder"), str(tmp_path / "launched")]
    found = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert found.returncode == 0, found.stderr
    assert "accelerate launch was asked for several processes and started one" in found.stderr
    assert (tmp_path / "launched-rank0").exists() and not (tmp_path / "launched-rank1").exists()
