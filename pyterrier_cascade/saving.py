"""Writing a ranker: to a folder, and to the Hugging Face Hub."""

import contextlib
import dataclasses
import os
import re
import tempfile
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyterrier_cascade import hub
from pyterrier_cascade.card import plain_card
from pyterrier_cascade.model import LoadedModel
from pyterrier_cascade.store.publish import explaining_full_disk
from pyterrier_cascade.store.update import updating_folder

OF_MODEL = re.compile(r"layers-\d+|(layers-\d+/)?(config\.json|model(-\d+-of-\d+)?\.safetensors(\.index\.json)?)")
"""The paths in a ranker's folder that decide which model it holds: another model must not leave them there."""


class Saved:
    """The part of a ranker that writes its weights with a model card.

    A subclass implements :meth:`write_weights` and :meth:`point_to`, and :meth:`model_card` for a card of its own.
    """

    # Of the base of all rankers.
    weight_holders: Any

    @abstractmethod
    def write_weights(self, path: str | os.PathLike) -> None:
        """Writes weights, configuration and tokenizer to a folder; the ranker does not stand for it."""

    @abstractmethod
    def point_to(self, path: str | os.PathLike) -> None:
        """Lets the ranker stand for a folder that :meth:`write_weights` wrote."""

    def model_card(self, name: str) -> str:
        """Returns the model card as Markdown.

        Args:
            name: The name that the ranker is loaded by.
        """
        return plain_card(type(self).__name__, name, self._models())

    def write(self, path: str | os.PathLike, name: str = "this-folder", **card: Any) -> None:
        """Writes weights, configuration, tokenizer and model card to a new folder; the ranker does not stand for it.

        Args:
            path: The folder. Nobody may read it before everything is written.
            name: The name that the card loads the ranker by.
            **card: What the class's :meth:`model_card` takes besides.
        """
        text = self.model_card(name, **card)
        self.write_weights(path)
        (Path(path) / hub.CARD).write_text(text, encoding="utf-8")

    def save_pretrained(self, path: str | os.PathLike, data: str | None = None, **card: Any) -> None:
        """Writes weights (safetensors), configuration, tokenizer and model card to a folder.

        Afterwards the ranker stands for that folder. A model that was there is replaced in one step, and other files of
        the folder stay. After an error, on a full disk too, the folder is as it was, and after a kill at any moment it
        holds the old model or the new one. Less is promised where a folder cannot be moved (the working directory, a
        mount point) or its system cannot exchange folders (others than Linux): a kill between the last renames leaves
        files of both there, or no folder until the next save puts the old one back.

        Args:
            path: The folder.
            data: The name of the training data, for the card.
            **card: What the class's model card takes besides.
        """
        self._name_data(data)
        full = f"the disk with {str(path)!r} is full; the folder is as it was: make room, then save the model again"
        with explaining_full_disk(full), updating_folder(path, OF_MODEL) as folder:
            self.write(folder, **card)
        self.point_to(path)

    def push_to_hub(
        self,
        repo_id: str,
        *,
        dry_run: bool = False,
        private: bool | None = None,
        token: str | bool | None = None,
        data: str | None = None,
        **card: Any,
    ) -> "str | hub.DryRun":
        """Uploads what :meth:`save_pretrained` writes to the Hugging Face Hub, and returns the address.

        The ranker stands for the same weights as before.

        Args:
            repo_id: The repository, ``"owner/name"``, or ``"name"`` for one of your own; it is made if it is not there.
            dry_run: Whether to upload nothing, and to return the files with their sizes and the card instead.
            private: Whether a new repository is private; what its owner's account says unless given.
            token: A token that may write there; that of ``hf auth login`` or of ``HF_TOKEN`` unless given.
            data: The name of the training data, for the card.
            **card: What the class's model card takes besides.
        """
        hub.check_repo_id(repo_id)
        for model in self._models():
            model.warn_if_untrained()
        with self._data_named(data), tempfile.TemporaryDirectory() as folder:
            if dry_run:
                self.write(folder, repo_id, **card)
                return hub.DryRun.of(folder, repo_id)
            # First, because a missing token should be known before anything is written, and the card names the owner.
            repository = hub.Repository(repo_id, private, token)
            self.write(folder, repository.repo_id, **card)
            repository.upload(folder, f"{type(self).__name__} of pyterrier_cascade")
            return repository.address

    def _models(self) -> list[LoadedModel]:
        return [one.model.loaded for one in self.weight_holders()]

    def _name_data(self, data: str | None) -> None:
        """Notes the name of the training data in the records; raises where there was no training."""
        if data is None:
            return
        records = [(model, None if model.untrained else model.trained_on) for model in self._models()]
        if any(record is None for _, record in records):
            raise ValueError(
                f"data={data!r} names the data of a training, but these weights have no record of one; train them "
                "first, or leave data out"
            )
        for model, record in records:
            model.keep_record(dataclasses.replace(record, data=data))

    @contextlib.contextmanager
    def _data_named(self, data: str | None) -> Iterator[None]:
        """Notes the name of the training data for a ``with`` block only."""
        before = [(model, model.trained_on) for model in self._models()]
        self._name_data(data)
        try:
            yield
        finally:
            for model, record in before if data is not None else ():
                model.keep_record(record)
