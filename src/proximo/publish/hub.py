"""The Hugging Face Hub, by its own library (the extra ``hub``)."""

from __future__ import annotations

import contextlib
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from proximo.errors import ConfigError, ProximoError, lacking
from proximo.publish import manifest
from proximo.run.sinks import METRICS

PREFIX = "hf:"


class HubError(ProximoError):
    """The Hub cannot be reached, or refuses."""


class Repository(NamedTuple):
    """``OWNER/NAME`` of a model repository, and a branch, tag or commit of it."""

    name: str
    revision: str | None = None


def parse(text: str) -> Repository | None:
    """The repository that ``hf:OWNER/NAME`` or ``hf:OWNER/NAME@REVISION`` means; None for a folder. Raises ``ConfigError``."""
    if not text.startswith(PREFIX):
        return None
    found = re.fullmatch(r"([\w.-]+/[\w.-]+)(?:@([\w./-]+))?", text.removeprefix(PREFIX))
    if found is None:
        raise ConfigError(f"{text!r}: expected hf:OWNER/NAME, for pull with @REVISION behind it where one is meant.")
    return Repository(found[1], found[2])


def _library() -> Any:
    if importlib.util.find_spec("huggingface_hub") is None:
        raise lacking("The Hugging Face Hub", "hub")
    import huggingface_hub

    return huggingface_hub


def begin(repository: Repository, private: bool) -> str:
    """Make the repository where it is missing, before minutes are spent on judging; its page.

    ``private``: a new one is for its owner's eyes only; without, the owner's default. Raises ``EnvError`` without the library, ``HubError``
    without a token, where the Hub refuses, or where the repository holds anything but what was published before; ``ConfigError`` for a revision.
    """
    library = _library()
    if repository.revision is not None:
        raise ConfigError(f"hf:{repository.name}@{repository.revision}: a revision is for pull; push writes to the main branch.")
    if library.get_token() is None:
        raise HubError("There is no token of the Hugging Face Hub: log in with `hf auth login`, or set HF_TOKEN.")
    with _told(repository):
        api = library.HfApi()
        page = api.create_repo(repository.name, private=private or None, exist_ok=True)
        content = set(api.list_repo_files(repository.name)) - {".gitattributes"}
        is_private = api.model_info(repository.name).private if private else True
    if content and manifest.MANIFEST not in content:
        raise HubError(f"hf:{repository.name} holds {min(content)!r} and no {manifest.MANIFEST}: choose another repository.")
    if not is_private:
        raise HubError(f"hf:{repository.name} exists and is public: make it private on its page, or leave out --private.")
    return str(page)


def upload(repository: Repository, folder: Path, message: str) -> None:
    """Commit the files of ``folder`` in place of those published before."""
    with _told(repository):
        _library().HfApi().upload_folder(
            repo_id=repository.name,
            folder_path=folder,
            commit_message=message,
            delete_patterns=["checkpoints/*", manifest.CLIP, METRICS],
        )


def download(repository: Repository, folder: Path) -> None:
    """The files of a published policy into ``folder``: those that its ``proximo.json`` names, and the card."""
    library = _library()

    def fetch(names: list[str]) -> None:
        with _told(repository):
            library.snapshot_download(repository.name, revision=repository.revision, local_dir=folder, allow_patterns=names)

    fetch([manifest.MANIFEST])
    fetch([*manifest.read(folder)["files"], manifest.CARD])


@contextlib.contextmanager
def _told(repository: Repository) -> Iterator[None]:
    """The library's many errors, which have no base of their own, as one sentence."""
    try:
        yield
    except Exception as error:
        words = " ".join(str(error).split()) or type(error).__name__
        raise HubError(f"The Hugging Face Hub does not do it for {repository.name}: {words}") from error
