import pytest
import torch
import transformers

from tests import tiny


@pytest.fixture(scope="session")
def encoder(tmp_path_factory):
    """Returns a tiny encoder of four layers of a family, the same one each time."""
    made = {}

    def of(family: str = "bert", **more) -> transformers.PreTrainedModel:
        key = (family, *sorted(more.items()))
        if key not in made:
            folder = tiny.save(tmp_path_factory.mktemp(family), family, layers=4, outputs=None, **more)
            made[key] = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
        return made[key]

    return of


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)
