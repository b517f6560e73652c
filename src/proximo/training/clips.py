"""Clips of a training: greedy episodes that are recorded now and then."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from proximo.evaluation.episodes import SELECTION_STREAM
from proximo.evaluation.policy import Policy
from proximo.networks import ActorCritic
from proximo.rendering.pictures import can_draw, no_renderer
from proximo.rendering.play import PlayedStep, Player, fps_of, make_player, play, policy_agent
from proximo.rendering.video import gif_of, videos
from proximo.rendering.watching import record
from proximo.threads import in_thread
from proximo.tracking.tracker import CLIP, Clip, Tracker
from proximo.training.backend import Snapshot
from proximo.training.events import Event, interval
from proximo.training.interrupts import together
from proximo.training.seed_run import SeedRun

if TYPE_CHECKING:
    from proximo.training.loop import Training

MAX_STEPS = 600
"""Maximum number of steps of a clip."""
GIF_FRAMES = 100
"""TensorBoard shows at most this many frames."""


class Clips(Event):
    """Records clips, in process 0. A failure is a warning; the training continues without clips."""

    def __init__(self, training: Training):
        super().__init__(training)
        self.every = 0 if training.path is None else interval(training.config.run.video_every, training.config)
        self._players: dict[int, Player] = {}
        """The environment of each seed, kept until the end: closing a renderer may break others (pygame.quit)."""
        self._is_over = False  # whether a clip has failed

    def on_start(self, now: Snapshot) -> None:
        if self.every and self.training.peers.is_first and not can_draw(self.backend.env):
            with self._warning():
                raise no_renderer(self.training.config.env.id)

    def on_update(self, now: Snapshot) -> None:
        if self.is_due(now.update):
            together(self.training.peers, "a clip", self._record_all, now)

    def close(self) -> None:
        with self._warning(), contextlib.ExitStack() as stack:
            for player in self._players.values():
                stack.callback(player.close)
            self.finish()

    def _record_all(self, now: Snapshot) -> None:
        for seed_run in self.training.active() if self.training.peers.is_first and not self._is_over else ():
            self.training.call(self._record, seed_run, self.backend.policy(now.state, seed_run.index), now.step)

    def _record(self, seed_run: SeedRun, actor_critic: ActorCritic, step: int) -> None:
        """Write the first episode of the evaluations to ``RUN/videos/<step>.mp4``."""
        with self._warning():
            self.finish()
            seed, env = seed_run.config.run.seed, self.backend.env
            if seed not in self._players:
                self._players[seed] = make_player(*self.backend.evaluation, seed, SELECTION_STREAM)
            player, agent = self._players[seed], policy_agent(Policy(actor_critic, env, self.backend.config, step))
            episode = play(player, agent, 1, MAX_STEPS)
            seed_run.folder.stat()  # a removed run directory is not made again
            arguments = videos(seed_run.folder) / f"{step}.mp4", step, fps_of(env), seed_run.trackers
            if player.draws_at_once:  # ffmpeg encodes in its own process
                _write(*arguments, episode)
            else:  # from states of the environment, so another thread can draw while the training goes on
                self._pending = in_thread(_write, *arguments, list(episode))

    @contextlib.contextmanager
    def _warning(self) -> Iterator[None]:
        """Turn an error of a renderer into a warning, after which no clip is recorded."""
        try:
            yield
        except (Exception, SystemExit) as error:
            if not self._is_over:
                self._is_over = True
                self.reporter.warned(f"No more clips (video_every): {error}")


def _write(path: Path, step: int, fps: float, trackers: Tracker, episode: Iterable[PlayedStep]) -> None:
    """Write ``episode`` to ``path``, and give trackers a small version with only every n-th frame."""
    _, [outcome] = record(episode, [path], fps, threads=1)
    stride = -(-(outcome["length"] + 1) // GIF_FRAMES)
    # The small version plays as fast as the file, but shows at least ten frames a second.
    trackers.write(step, {CLIP: Clip(path, lambda: gif_of(path, stride, max(fps / stride, 10.0)))})


def discard_after(run_dir: Path, step: int) -> None:
    """Remove the clips after ``step``, which a resume records again, and the incomplete files of a crash."""
    for path in videos(run_dir).glob("*.mp4"):
        if path.name.startswith(".") or (path.stem.isdecimal() and int(path.stem) > step):
            path.unlink(missing_ok=True)
