"""Uploading a folder to the Hugging Face Hub, and the dry run that uploads nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

CARD = "README.md"
"""The name of the model card, which the Hub shows."""


@dataclass(frozen=True, repr=False)
class DryRun:
    """What an upload to the Hugging Face Hub would send.

    Attributes:
        repo_id: The repository.
        files: The size of each file in bytes, by its path in the repository.
        card: The model card.
    """

    repo_id: str
    files: Mapping[str, int]
    card: str

    @classmethod
    def of(cls, folder: str, repo_id: str) -> "DryRun":
        """Returns the dry run for a folder.

        Args:
            folder: The folder that would be uploaded.
            repo_id: The repository.
        """
        paths = sorted(path for path in Path(folder).rglob("*") if path.is_file())
        files = {path.relative_to(folder).as_posix(): path.stat().st_size for path in paths}
        return cls(repo_id, files, (Path(folder) / CARD).read_text(encoding="utf-8"))

    def __repr__(self):
        """Returns a line for each file, and the card."""
        sizes = [f"{size:>15,}  {name}" for name, size in self.files.items()]
        total = f"{len(self.files)} files, {sum(self.files.values()):,} bytes"
        return "\n".join([f"Dry run: {self.repo_id!r} would get {total}", *sizes, "", f"{CARD}:", self.card])


def check_repo_id(repo_id: str) -> None:
    """Raises unless a text can name a repository on the Hub."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        # The check of the library passes None.
        validate_repo_id("" if repo_id is None else repo_id)
    except HFValidationError as error:
        raise ValueError(
            f"repo_id={repo_id!r} names no repository on the Hugging Face Hub; give 'owner/name', or 'name' for one of "
            "your own, of letters, digits, '-', '_' and '.'"
        ) from error


class Repository:
    """A repository on the Hub to write to; it is made if it is not there.

    Args:
        repo_id: ``"owner/name"``, or ``"name"`` for one of the user's own.
        private: Whether a new one is private; what the owner's account says unless given.
        token: The user's token; that of ``hf auth login`` unless given.

    Attributes:
        address: Its address.
        repo_id: Its name with its owner.
    """

    def __init__(self, repo_id: str, private: bool | None, token: str | bool | None):
        from huggingface_hub import HfApi

        self._api, self.repo_id = HfApi(token=token), repo_id
        made = self._asked("create_repo", repo_id, private=private, exist_ok=True)
        self.address, self.repo_id = str(made), getattr(made, "repo_id", repo_id)

    def upload(self, folder: str, message: str) -> None:
        """Uploads the content of a folder as one commit."""
        self._asked("upload_folder", repo_id=self.repo_id, folder_path=folder, commit_message=message)

    def _asked(self, method: str, *args, **options):
        """Returns the answer of the Hub; where it does not let the user in, the error says how to log in."""
        from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError

        try:
            return getattr(self._api, method)(*args, **options)
        except (LocalTokenNotFoundError, HfHubHTTPError) as error:
            response = getattr(error, "response", None)
            if isinstance(error, HfHubHTTPError) and getattr(response, "status_code", None) not in (401, 403):
                raise
            raise PermissionError(
                f"the Hugging Face Hub does not let you write to {self.repo_id!r}; run `hf auth login`, set HF_TOKEN, "
                "or give token=, with a token that may write there"
            ) from error
