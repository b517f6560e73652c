"""Clips of a training: now and then a greedy episode, drawn and encoded beside it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from proximo.config import Config
from proximo.envs import HostEnvironment, JaxEnvironment
from proximo.errors import EnvError
from proximo.networks import ActorCritic
from proximo.run.evaluation import SELECTION_STREAM
from proximo.run.frames import videos
from proximo.run.gif import gif_of
from proximo.run.member import Member, RunMember
from proximo.run.playing import PolicyAgent, Row, play, stage_of
from proximo.run.policy import Policy
from proximo.run.stage import Stage, draws, fps_of, no_renderer
from proximo.run.video import Mp4

MOST_STEPS = 600
"""After which the episode of a clip is cut."""
WAITING = 32
"""Frames of an environment of the host that may wait to be encoded: a megabyte each. Those of one in JAX wait as states."""
GIF_FRAMES, GIF_PIXELS = 100, 200
"""What TensorBoard gets: at most so many frames, and pixels along the longer side."""


class Clips:
    """Records the clips of one training. What fails is told once, and the training goes on without clips."""

    def __init__(self, config: Config, env: JaxEnvironment | HostEnvironment, warned: Callable[[str], None]):
        self.config, self.env, self._warned = config, env, warned
        self._stages: dict[int, Stage] = {}
        self._encoder: _Encoder | None = None
        self._given_up = False
        if not draws(env):
            self._give_up(no_renderer(config.env.id))

    def _give_up(self, error: BaseException) -> None:
        if not self._given_up:
            self._given_up = True
            self._warned(f"No more clips (video_every): {error}")

    def record(self, member: RunMember, network: ActorCritic, step: int) -> None:
        """Play the first episode of the member's evaluations with the policy of ``step``; ``RUN/videos/<step>.mp4`` is written beside
        what follows."""
        if self._given_up:
            return
        try:
            self._check()
            encoder = self._encoder = self._encoder or _Encoder(WAITING if isinstance(self.env, HostEnvironment) else 0)
            encoder.begin(member, step, fps_of(self.env))
            for row in self._rows(member, Policy(network, self.env, self.config, step)):
                encoder.frame(row.draw)
            encoder.end()
        except (Exception, SystemExit) as error:  # whatever a renderer does, the training goes on
            self._give_up(error)
            if self._encoder is not None:
                self._encoder.drop()

    def _rows(self, member: Member, policy: Policy) -> Iterator[Row]:
        seed = member.config.run.seed
        # Kept until the training ends: closing a renderer may take from others in this process what they draw with (pygame.quit).
        if seed not in self._stages:
            self._stages[seed] = stage_of(self.env, self.config, seed, SELECTION_STREAM)
        return play(self._stages[seed], PolicyAgent(policy), 1, MOST_STEPS)

    def _check(self) -> None:
        if self._encoder is not None and self._encoder.fault is not None:
            raise self._encoder.fault

    def close(self) -> None:
        """Wait for what is being encoded, end the environments."""
        try:
            if self._encoder is not None:
                self._encoder.close()
            self._check()
            for stage in self._stages.values():
                stage.close()
        except (Exception, SystemExit) as error:
            self._give_up(error)


class _Encoder:
    """A thread that draws, encodes, and hands the small version to TensorBoard. ``fault`` is what has ended it."""

    def __init__(self, waiting: int) -> None:
        self.fault: BaseException | None = None
        self._orders: queue.Queue[Callable[[], None] | None] = queue.Queue(waiting)
        self._clip: _Clip | None = None
        self._thread = threading.Thread(target=self._work, daemon=True, name="clips")
        self._thread.start()

    def _work(self) -> None:
        while (order := self._orders.get()) is not None:
            if self.fault is not None:
                continue
            try:
                order()
            except (Exception, SystemExit) as error:
                self.fault = error
                if self._clip is not None:
                    self._clip.drop()

    def begin(self, member: RunMember, step: int, fps: float) -> None:
        def order() -> None:
            self._clip = _Clip(member, step, fps)

        self._orders.put(order)

    def frame(self, draw: Callable[[], np.ndarray | None]) -> None:
        self._orders.put(lambda: self._clip.add(draw()) if self._clip is not None else None)

    def end(self) -> None:
        self._orders.put(lambda: self._clip.finish() if self._clip is not None else None)

    def drop(self) -> None:
        self._orders.put(lambda: self._clip.drop() if self._clip is not None else None)

    def close(self) -> None:
        self._orders.put(None)
        self._thread.join()


class _Clip:
    """One file, and every so manieth frame of it, small, for TensorBoard."""

    def __init__(self, member: RunMember, step: int, fps: float):
        self.member, self.step, self.fps = member, step, fps
        path = videos(member.run_dir) / f"{step}.mp4"
        path.parent.mkdir(exist_ok=True)
        self._file = Mp4(path, fps, threads=1)
        self._small: list[np.ndarray] = []
        self._count, self._stride = 0, 1

    def add(self, frame: np.ndarray | None) -> None:
        if frame is None:
            raise EnvError("the environment draws nothing.")
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
        # Played about as fast as the file, but no slower than ten pictures a second: it is a look in passing.
        self.member.show(self.step, lambda: gif_of(self._small, max(fps, 10.0)), (height, width))

    def drop(self) -> None:
        self._file.drop()


def _shrunk(frame: np.ndarray) -> np.ndarray:
    from PIL import Image

    scale = min(1.0, GIF_PIXELS / max(frame.shape[:2]))
    size = (max(1, round(frame.shape[1] * scale)), max(1, round(frame.shape[0] * scale)))
    return np.array(Image.fromarray(frame).resize(size, Image.Resampling.BOX))


def discard_after(run_dir: Path, step: int) -> None:
    """Remove the clips beyond ``step``, for a resume from it, and what a crash has left half written."""
    folder = videos(run_dir)
    for path in folder.glob("*.mp4"):
        if path.name.startswith(".") or (path.stem.isdecimal() and int(path.stem) > step):
            path.unlink(missing_ok=True)
