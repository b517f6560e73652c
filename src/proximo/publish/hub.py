"""The Hugging Face Hub through its library (the extra ``hub``)."""

import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from proximo.config import Config
from proximo.errors import ConfigError, ProximoError, require
from proximo.publish.manifest import CARD, CLIP, MANIFEST, PATTERNS
from proximo.storage.run_directory import METRICS


class HubError(ProximoError):
    """The Hub cannot be reached, or refuses a request."""


def parse(text: str) -> tuple[str | None, str | None]:
    """The repository of ``hf:OWNER/NAME@REVISION`` and its branch, tag or commit, or None; (None, None) for a folder.
    Raises ``ConfigError`` for invalid text."""
    found = re.fullmatch(r"hf:([\w.-]+/[\w.-]+)(?:@([\w./-]+))?", text)
    if found is None and text.startswith("hf:"):
        raise ConfigError(f"{text!r}: expected hf:OWNER/NAME; pull also accepts hf:OWNER/NAME@REVISION.")
    return (found[1], found[2]) if found else (None, None)


def begin(name: str, private: bool) -> str:
    """Create the repository ``name`` if it does not exist, and return the address of its page.

    Raises ``HubError`` if the Hub refuses, or if the repository contains something else, or is not ``private``.
    """
    with _library(name) as library:
        api = library.HfApi(token=True)  # without a token, the next line raises
        page = api.create_repo(name, private=private or None, exist_ok=True)
        content = set(api.list_repo_files(name)) - {".gitattributes"}
        is_public = private and not api.model_info(name).private
    if content and MANIFEST not in content:
        raise HubError(f"hf:{name} contains {min(content)!r} but no {MANIFEST}: choose another repository.")
    if is_public:
        raise HubError(f"hf:{name} exists and is public: make it private on its page, or omit --private.")
    return str(page)


def upload(name: str, folder: Path, config: Config, evaluation: Mapping[str, Any]) -> None:
    """Commit the files of ``folder``, with a model card's metadata. They replace earlier ones."""
    env, kind, greedy = config.env.id, "reinforcement-learning", evaluation["greedy"]
    memory = ["recurrent", str(config.network.memory)] if config.network.remembers else []
    score, card = f"{greedy['return_mean']:.2f} +/- {greedy['return_std']:.2f}", folder / CARD
    with _library(name) as library:
        data = library.ModelCardData(
            library_name="proximo",
            pipeline_tag=kind,
            tags=[kind, "deep-reinforcement-learning", "ppo", "proximo", "jax", *memory, env],
            model_name=f"ppo-{env}",
            eval_results=[library.EvalResult(kind, env, env, "mean_reward", score)],
        )
        library.ModelCard(f"---\n{data.to_yaml()}\n---\n\n{card.read_text(encoding='utf-8')}").save(card)
        library.HfApi().upload_folder(
            repo_id=name,
            folder_path=folder,
            commit_message=f"{env} at step {evaluation['step']:,}",
            delete_patterns=["checkpoints/*", CLIP, METRICS],
        )


def download(name: str, revision: str | None, folder: Path) -> None:
    """Download to ``folder`` the files that a ``proximo.json`` may list, and the card."""
    with _library(name) as library:
        library.snapshot_download(name, revision=revision, local_dir=folder, allow_patterns=PATTERNS)


@contextlib.contextmanager
def _library(name: str) -> Iterator[Any]:
    """The library of the Hub. Its errors, which have no common base, become ``HubError``."""
    require("huggingface_hub", "The Hugging Face Hub", "hub")
    import huggingface_hub

    try:
        yield huggingface_hub
    except Exception as error:
        words = " ".join(str(error).split()) or type(error).__name__
        raise HubError(f"The Hugging Face Hub refuses the request for {name}: {words}") from error
