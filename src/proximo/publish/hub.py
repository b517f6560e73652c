"""The Hugging Face Hub, by its own library (the extra ``hub``)."""

from __future__ import annotations

import contextlib
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from proximo.errors import ConfigError, ProximoError, lacking

PREFIX = "hf:"
TAKEN = ("*.json", "*.jsonl", "*.yaml", "README.md", "*.mp4", "checkpoints/*")
"""What is downloaded of a repository; what is taken of it, ``proximo.json`` decides."""


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


def hold(repository: Repository) -> None:
    """What would stop an upload, before anything is judged: raise ``EnvError`` without the library, ``HubError`` without a token,
    ``ConfigError`` for a revision."""
    if repository.revision is not None:
        raise ConfigError(f"hf:{repository.name}@{repository.revision}: a revision is for pull; push writes to the main branch.")
    if _library().get_token() is None:
        raise HubError("There is no token of the Hugging Face Hub: log in with `hf auth login`, or set HF_TOKEN.")


def upload(repository: Repository, folder: Path, message: str, private: bool) -> None:
    """Make the repository where it is missing (``private`` counts only then), and commit the files of ``folder`` in place of those published
    before."""
    with _told(repository):
        api = _library().HfApi()
        api.create_repo(repository.name, private=private, exist_ok=True)
        api.upload_folder(
            repo_id=repository.name, folder_path=folder, commit_message=message, delete_patterns=["checkpoints/*", "replay.mp4"]
        )


def download(repository: Repository, folder: Path) -> None:
    """The files of a published policy into ``folder``."""
    library = _library()
    with _told(repository):
        library.snapshot_download(repository.name, revision=repository.revision, local_dir=folder, allow_patterns=list(TAKEN))


@contextlib.contextmanager
def _told(repository: Repository) -> Iterator[None]:
    """The library's many errors as one sentence."""
    try:
        yield
    except (OSError, ValueError, RuntimeError) as error:  # HTTP errors are OSErrors; names that cannot be are ValueErrors
        words = " ".join(str(error).split()) or type(error).__name__
        raise HubError(f"The Hugging Face Hub does not do it for {repository.name}: {words}") from error
