"""Access to the Hugging Face Hub through its library (the extra ``hub``)."""

from __future__ import annotations

import contextlib
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from proximo.errors import ConfigError, ProximoError, lacking
from proximo.publish import manifest
from proximo.storage.run_directory import METRICS

PREFIX = "hf:"


class HubError(ProximoError):
    """The Hub cannot be reached, or refuses a request."""


class Repository(NamedTuple):
    """``OWNER/NAME`` of a model repository, and optionally a branch, tag or commit."""

    name: str
    revision: str | None = None


def parse(text: str) -> Repository | None:
    """Parse ``hf:OWNER/NAME`` or ``hf:OWNER/NAME@REVISION``. Returns None for a folder; raises ``ConfigError`` for invalid text."""
    if not text.startswith(PREFIX):
        return None
    found = re.fullmatch(r"([\w.-]+/[\w.-]+)(?:@([\w./-]+))?", text.removeprefix(PREFIX))
    if found is None:
        raise ConfigError(f"{text!r}: expected hf:OWNER/NAME; pull also accepts hf:OWNER/NAME@REVISION.")
    return Repository(found[1], found[2])


def begin(repository: Repository, private: bool) -> str:
    """Create the repository if it does not exist, and return the address of its page. Called before the evaluation, which takes
    minutes.

    Raises ``ConfigError`` if a revision was given, and ``HubError`` if there is no token, the Hub refuses, or the repository contains
    something else, or is public but should be ``private``.
    """
    if repository.revision is not None:
        raise ConfigError(f"hf:{repository.name}@{repository.revision}: push writes to the main branch: omit @ and the revision.")
    with _library(repository) as library:
        api, token = library.HfApi(), library.get_token()
    if token is None:
        raise HubError("No token of the Hugging Face Hub was found: log in with `hf auth login`, or set HF_TOKEN.")
    with _library(repository):
        page = api.create_repo(repository.name, private=private or None, exist_ok=True)
        content = set(api.list_repo_files(repository.name)) - {".gitattributes"}
        is_public = private and not api.model_info(repository.name).private
    if content and manifest.MANIFEST not in content:
        raise HubError(f"hf:{repository.name} contains {min(content)!r} but no {manifest.MANIFEST}: choose another repository.")
    if is_public:
        raise HubError(f"hf:{repository.name} exists and is public: make it private on its page, or omit --private.")
    return str(page)


def upload(repository: Repository, folder: Path, message: str) -> None:
    """Commit the files of ``folder``. They replace those published before."""
    replaced = ["checkpoints/*", manifest.CLIP, METRICS]
    with _library(repository) as library:
        library.HfApi().upload_folder(
            repo_id=repository.name, folder_path=folder, commit_message=message, delete_patterns=replaced
        )


def download(repository: Repository, folder: Path) -> None:
    """Download a published policy to ``folder``: the files that its ``proximo.json`` may list, and the card."""
    with _library(repository) as library:
        library.snapshot_download(
            repository.name, revision=repository.revision, local_dir=folder, allow_patterns=manifest.PATTERNS
        )


@contextlib.contextmanager
def _library(repository: Repository) -> Iterator[Any]:
    """The library of the Hub. Its errors, which have no common base, become ``HubError``."""
    if importlib.util.find_spec("huggingface_hub") is None:
        raise lacking("The Hugging Face Hub", "hub")
    import huggingface_hub

    try:
        yield huggingface_hub
    except Exception as error:
        words = " ".join(str(error).split()) or type(error).__name__
        raise HubError(f"The Hugging Face Hub refuses the request for {repository.name}: {words}") from error
