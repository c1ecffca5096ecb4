"""The Hugging Face Hub: names, errors, and the dry run."""

import re
from types import SimpleNamespace

import huggingface_hub
import pytest
from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError

from pyterrier_cascade import hub


def refusal(status: int) -> HfHubHTTPError:
    error = HfHubHTTPError.__new__(HfHubHTTPError)
    error.response = SimpleNamespace(status_code=status)
    return error


def api(monkeypatch, error: Exception | None = None, made: str = "https://hub.example/me/x"):
    class Api:
        def __init__(self, token):
            self.token = token

        def create_repo(self, repo_id, private, exist_ok):
            if error is not None:
                raise error
            return made

        def upload_folder(self, **options):
            self.options = options

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)


@pytest.mark.parametrize("error", [refusal(401), refusal(403), LocalTokenNotFoundError("no token")])
def test_without_the_right_token_the_error_says_how_to_log_in(monkeypatch, error):
    api(monkeypatch, error)
    message = (
        "the Hugging Face Hub does not let you write to 'me/x'; run `hf auth login`, set HF_TOKEN, or give token=, "
        "with a token that may write there"
    )
    with pytest.raises(PermissionError, match=f"^{re.escape(message)}$") as caught:
        hub.Repository("me/x", None, None)
    assert caught.value.__cause__ is error


def test_other_errors_stay_as_they_are(monkeypatch):
    error = refusal(500)
    api(monkeypatch, error)
    with pytest.raises(HfHubHTTPError) as caught:
        hub.Repository("me/x", None, None)
    assert caught.value is error


def test_the_owner_of_a_bare_name_is_learnt(monkeypatch):
    class Address(str):
        repo_id = "me/x"

    api(monkeypatch, made=Address("https://hub.example/me/x"))
    made = hub.Repository("x", None, "t")
    made.upload("folder", "words")
    assert (made.repo_id, made.address, made._api.token) == ("me/x", "https://hub.example/me/x", "t")
    assert made._api.options == {"repo_id": "me/x", "folder_path": "folder", "commit_message": "words"}


@pytest.mark.parametrize("name", ["name", "owner/name", "Owner-1/na_me.v2"])
def test_good_names(name):
    assert hub.check_repo_id(name) is None


def test_a_dry_run_reads_well(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "model.safetensors").write_bytes(b"0" * 12_345)
    (tmp_path / "README.md").write_text("# A card\n")
    found = hub.DryRun.of(str(tmp_path), "me/x")
    assert found == hub.DryRun("me/x", {"README.md": 9, "inner/model.safetensors": 12_345}, "# A card\n")
    assert repr(found) == (
        "Dry run: 'me/x' would get 2 files, 12,354 bytes\n"
        "              9  README.md\n"
        "         12,345  inner/model.safetensors\n"
        "\n"
        "README.md:\n"
        "# A card\n"
    )
