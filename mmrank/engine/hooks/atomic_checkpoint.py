"""Checkpoints that are whole or absent, whenever the run is killed."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from typing import Any

from mmengine.fileio import LocalBackend, register_backend
from mmengine.hooks import CheckpointHook

from mmrank.files import write_whole
from mmrank.registry import HOOKS

BACKEND = 'mmrank_atomic'


class AtomicLocalBackend(LocalBackend):
    """The local disk, where a file appears under its name only when whole."""

    def put(self, obj: bytes, filepath: str | Path) -> None:
        """Writes beside the target, then renames over it."""
        with write_whole(filepath) as file:
            file.write(obj)


def _remove_leftovers(folder: Path) -> None:
    """Removes the parts of checkpoints whose writers are gone.

    Only this host's processes are known, so other hosts' parts stay.
    """
    host = re.escape(socket.gethostname())
    for part in folder.glob('.*.part'):
        named = re.fullmatch(
            rf'\..+\.pth\.{host}\.(\d+)\.\w+\.part', part.name)
        if named and not _runs_elsewhere(int(named.group(1))):
            part.unlink(missing_ok=True)


def _runs_elsewhere(process: int) -> bool:
    """Whether a process of this number runs that is not this one.

    In a restarted container this one may have the killed one's number.
    """
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it runs, for another user
    return process != os.getpid()


register_backend(BACKEND, AtomicLocalBackend, force=True)


@HOOKS.register_module()
class AtomicCheckpointHook(CheckpointHook):
    """MMEngine's checkpoint hook, safe against a kill at any moment.

    Each file is renamed into place when it is whole, and with
    ``max_keep_ckpts`` the oldest one goes after the new one is there, not
    before. The tools put this hook in the place of a plain
    ``CheckpointHook`` that writes to the local disk.

    A run that starts removes the unfinished files that killed runs of this
    host left in its folder. Those that a running process writes stay, and so
    do those of other hosts, whose processes it cannot see: delete such a
    ``.*.part`` by hand when its run is gone.

    Args:
        args: Those of :class:`mmengine.hooks.CheckpointHook`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if kwargs.get('backend_args') is None:
            kwargs['backend_args'] = dict(backend=BACKEND)
        super().__init__(*args, **kwargs)

    def before_train(self, runner: Any) -> None:
        """Goes on as MMEngine does, and clears what killed runs left."""
        super().before_train(runner)
        if runner.rank == 0:
            _remove_leftovers(Path(self.out_dir))

    def _save_checkpoint_with_step(self, runner: Any, step: int,
                                   meta: dict) -> None:
        oldest = None
        if self.max_keep_ckpts > 0:
            kept = self.keep_ckpt_ids
            if len(kept) == self.max_keep_ckpts and kept[-1] != step:
                oldest = kept.popleft()
        super()._save_checkpoint_with_step(runner, step, meta)
        if oldest is not None and runner.rank == 0:
            path = self.file_backend.join_path(
                self.out_dir, self.filename_tmpl.format(oldest))
            if self.file_backend.isfile(path):
                self.file_backend.remove(path)
