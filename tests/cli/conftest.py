from types import SimpleNamespace

import pytest

from pyterrier_cascade import DCBERT, Cascade, HierarchicalArchitecture, HierarchicalRanker, HierarchicalTraining
from pyterrier_cascade.cli.main import main
from pyterrier_cascade.model import TrainedOn
from tests import tiny
from tests.cli.lists import CANDIDATES, write_lists


@pytest.fixture
def cli(capsys):
    """Runs a command in this process and returns its exit code and what it wrote."""

    def run(*argv) -> SimpleNamespace:
        capsys.readouterr()
        code = main([str(one) for one in argv])
        out, err = capsys.readouterr()
        return SimpleNamespace(code=code, out=out, err=err, lines=out.splitlines())

    return run


@pytest.fixture
def refused(cli):
    """Runs a command that must fail with exit code 2, one line and no data, and returns that line."""

    def run(*argv) -> str:
        done = cli(*argv, "--quiet")
        assert (done.code, done.out) == (2, ""), done.err
        start, end = "pyterrier_cascade: error: ", "\n"
        assert done.err.startswith(start) and done.err.endswith(end) and done.err.count(end) == 1, done.err
        return done.err[len(start) : -len(end)]

    return run


@pytest.fixture(scope="session")
def encoder(tmp_path_factory) -> str:
    """A bare encoder of three layers."""
    return tiny.save(tmp_path_factory.mktemp("cli") / "encoder", layers=3, outputs=None)


@pytest.fixture(scope="session")
def cascade(encoder, tmp_path_factory) -> str:
    """A cascade with heads at layers 1, 2 and 3 that counts as trained."""
    ranker = Cascade.from_pretrained(encoder)
    module = ranker.model.loaded.module
    for head in module.heads:
        for linear in head[::3]:
            linear.weight.data *= 20
    ranker.model.loaded.mark_trained(TrainedOn(1, 2, 1, "-", data="made up"))
    return _saved(ranker, tmp_path_factory)


@pytest.fixture(scope="session")
def dcbert(encoder, tmp_path_factory) -> str:
    """A DC-BERT that counts as trained."""
    ranker = DCBERT.from_pretrained(encoder, joint_layers=2)
    ranker.model.loaded.mark_trained(TrainedOn(1, 2, 1, "-"))
    return _saved(ranker, tmp_path_factory)


@pytest.fixture(scope="session")
def hierarchical(tmp_path_factory) -> str:
    sizes = HierarchicalArchitecture(embedding_width=8, width=8, channels=4, kernels=2, hidden=8)
    ranker = HierarchicalRanker("CA", "point", architecture=sizes, training=HierarchicalTraining(epochs=1))
    return _saved(ranker.fit_candidates(CANDIDATES), tmp_path_factory)


@pytest.fixture(scope="session")
def lists(tmp_path_factory) -> SimpleNamespace:
    """The candidates as files."""
    return write_lists(tmp_path_factory.mktemp("lists"))


def _saved(ranker, tmp_path_factory) -> str:
    folder = str(tmp_path_factory.mktemp("cli") / "saved")
    ranker.save_pretrained(folder)
    return folder
