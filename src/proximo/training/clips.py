"""Clips of a training: greedy episodes that are recorded now and then. A thread draws and encodes them while training continues."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np

from proximo.backends import Backend
from proximo.errors import EnvError
from proximo.evaluation.episodes import SELECTION_STREAM
from proximo.evaluation.policy import Policy
from proximo.networks import ActorCritic
from proximo.rendering.pictures import can_draw, no_renderer
from proximo.rendering.play import Player, fps_of, play, policy_agent
from proximo.rendering.video import Video, gif_of, videos
from proximo.tracking.tracker import CLIP, Clip
from proximo.training.seed_run import SeedRun

MAX_STEPS = 600
"""Maximum number of steps of a clip."""
MAX_WAITING_PICTURES = 32
"""Maximum number of drawn pictures that wait to be encoded, about 1 MB each. JAX environments are drawn later; the number of their waiting
states is not limited."""
GIF_FRAMES, GIF_PIXELS = 100, 200
"""TensorBoard shows at most this many frames, with at most this many pixels along the longer side."""


class Clips:
    """Records the clips of one training. The first failure is a warning; after it the training continues without clips."""

    def __init__(self, backend: Backend, warn: Callable[[str], None]):
        self.backend, self._warn = backend, warn
        self._players: dict[int, Player] = {}
        """The environment of each seed. It is kept until the training ends: closing a renderer may break other renderers (pygame.quit)."""
        self._encoder: _Encoder | None = None
        self._given_up = False
        if not can_draw(backend.env):
            self._give_up(no_renderer(backend.config.env.id))

    def _give_up(self, error: BaseException) -> None:
        if not self._given_up:
            self._given_up = True
            self._warn(f"No more clips (video_every): {error}")

    def record(self, seed_run: SeedRun, actor_critic: ActorCritic, step: int) -> None:
        """Play the first episode of the evaluations with the policy of ``step``. The encoder writes ``RUN/videos/<step>.mp4``."""
        if self._given_up:
            return
        try:
            seed = seed_run.config.run.seed
            if seed not in self._players:
                self._players[seed] = self.backend.player(seed, SELECTION_STREAM)
            player = self._players[seed]
            encoder = self._encoder = self._encoder or _Encoder(MAX_WAITING_PICTURES if player.draws_at_once else 0)
            encoder.check()
            clip = _Clip(seed_run, step, fps_of(self.backend.env))
            policy = Policy(actor_critic, self.backend.env, self.backend.config, step)
            try:
                for played in play(player, policy_agent(policy), 1, MAX_STEPS):
                    encoder.put(clip, lambda draw=played.draw: clip.add(draw()))
            except BaseException:
                encoder.put(clip, clip.drop)
                raise
            encoder.put(clip, clip.finish)
        except (Exception, SystemExit) as error:  # whatever a renderer does, the training continues
            self._give_up(error)

    def close(self) -> None:
        """Wait until the last clip is encoded, and close the environments."""
        try:
            with contextlib.ExitStack() as players:
                for player in self._players.values():
                    players.callback(player.close)
                if self._encoder is not None:
                    self._encoder.close()
                    self._encoder.check()
        except (Exception, SystemExit) as error:
            self._give_up(error)


class _Encoder:
    """A thread that draws and encodes clips. After an ``error`` it does no more work."""

    def __init__(self, max_waiting: int) -> None:
        self.error: BaseException | None = None
        self._orders: queue.Queue[tuple[_Clip, Callable[[], None]] | None] = queue.Queue(max_waiting)
        self._thread = threading.Thread(target=self._work, daemon=True, name="clips")
        self._thread.start()

    def _work(self) -> None:
        while (order := self._orders.get()) is not None:
            clip, work = order
            try:
                if self.error is None:
                    work()
            except (Exception, SystemExit) as error:
                self.error = error
                with contextlib.suppress(Exception, SystemExit):  # the thread must go on: others wait for it
                    clip.drop()

    def put(self, clip: _Clip, work: Callable[[], None]) -> None:
        """Let the thread call ``work`` for ``clip`` next."""
        self._orders.put((clip, work))

    def check(self) -> None:
        """Raise the error that has ended the thread's work, if any."""
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        """Wait until all work is done."""
        self._orders.put(None)
        self._thread.join()


class _Clip:
    """The file of a clip, and a small version of it for TensorBoard, which has only every n-th frame."""

    def __init__(self, seed_run: SeedRun, step: int, fps: float):
        self.seed_run, self.step, self.fps = seed_run, step, fps
        assert seed_run.run_dir is not None
        path = videos(seed_run.run_dir) / f"{step}.mp4"
        path.parent.mkdir(exist_ok=True)
        self._file = Video(path, fps, threads=1)
        self._small: list[np.ndarray] = []
        self._count, self._stride = 0, 1

    def add(self, frame: np.ndarray | None) -> None:
        if frame is None:
            raise EnvError("the environment draws no picture.")
        written = self._file.add(frame)
        if self._count % self._stride == 0:
            self._small.append(_shrunk(written))
        self._count += 1
        if len(self._small) > GIF_FRAMES:
            self._small, self._stride = self._small[::2], 2 * self._stride

    def finish(self) -> None:
        self._file.close()
        height, width = self._small[0].shape[:2]
        fps = self.fps / self._stride
        # The small version plays as fast as the file, but shows at least ten frames a second.
        clip = Clip(self._file.path, lambda: gif_of(self._small, max(fps, 10.0)), (height, width))
        self.seed_run.trackers.write(self.step, {CLIP: clip})

    def drop(self) -> None:
        self._file.drop()


def _shrunk(frame: np.ndarray) -> np.ndarray:
    from PIL import Image

    scale = min(1.0, GIF_PIXELS / max(frame.shape[:2]))
    size = (max(1, round(frame.shape[1] * scale)), max(1, round(frame.shape[0] * scale)))
    return np.array(Image.fromarray(frame).resize(size, Image.Resampling.BOX))


def discard_after(run_dir: Path, step: int) -> None:
    """Remove the clips after ``step``, because a resume records them again, and the incomplete files of a crash."""
    folder = videos(run_dir)
    for path in folder.glob("*.mp4"):
        if path.name.startswith(".") or (path.stem.isdecimal() and int(path.stem) > step):
            path.unlink(missing_ok=True)
