"""The client's methods for checkpoints: the buffers of a session as they were at one moment, on the daemon's disk."""
from __future__ import annotations

from typing import List, Optional, Sequence, Union, cast

from ._asker import Asker, given, path_of, words
from .types import Checkpoint, CheckpointMade, CheckpointRestored, CheckpointVerified

PATIENCE_S = 3600  # the bytes of a whole session may be read and written


class Checkpointing(Asker):
    """Part of the client. A checkpoint outlives its session, and later writes do not change it."""

    def checkpoint(self, name: str, *, session: Optional[str] = None, prefix: Optional[str] = None,
                   names: Optional[Sequence[str]] = None, lenient: bool = False,
                   unstable: bool = False) -> CheckpointMade:
        """Keeps the buffers of a session as they are now: of the client's own, if none is given.

        Args:
            name: of the checkpoint. It is unique in the daemon.
            prefix: only buffers whose names begin so; names: only these.
            lenient: leaves out buffers whose bytes cannot be read, instead of raising their error.
            unstable: takes buffers as they are that other processes may be writing."""
        body = given(name=name, prefix=prefix, names=None if names is None else words("names", names),
                     lenient=True if lenient else None, unstable=True if unstable else None)
        return cast(CheckpointMade, self._post(self._below("checkpoints", session=session), body, patience=PATIENCE_S))

    def checkpoints(self, session: Optional[str] = None) -> List[Checkpoint]:
        """All checkpoints that the token may see, or those of one session."""
        return cast(List[Checkpoint], self._all(path_of("checkpoints"), given(session=session)))

    def checkpoint_info(self, name: str) -> Checkpoint:
        """One checkpoint."""
        return cast(Checkpoint, self._get(path_of("checkpoints", name)))

    def verify_checkpoint(self, name: str) -> CheckpointVerified:
        """Reads the files of a checkpoint and compares them with their checksums. Nothing is raised for damage: check
        match."""
        return cast(CheckpointVerified, self._post(path_of("checkpoints", name, "verify"), patience=PATIENCE_S))

    def restore(self, name: str, *, into: Optional[str] = None, prefix: Optional[str] = None,
                names: Optional[Sequence[str]] = None, replace: bool = False, load: Optional[str] = None,
                device: Union[int, str, None] = None) -> CheckpointRestored:
        """Makes the buffers of a checkpoint again, all or none.

        Args:
            into: the session that gets them; without it the one that they were of, whatever the client's own is.
            prefix: stands before their names; names: only these buffers.
            replace: they take the place of buffers of those names. Without it one that exists raises BufferExists.
            load: ``eager`` to have the bytes in memory at the return, ``lazy`` (the default) to have them come when
                they are needed.
            device: of the buffers, by index or UUID."""
        body = given(into=into, prefix=prefix, names=None if names is None else words("names", names),
                     replace=True if replace else None, load=load, device=device)
        return cast(CheckpointRestored, self._post(path_of("checkpoints", name, "restore"), body, patience=PATIENCE_S))

    def delete_checkpoint(self, name: str) -> None:
        """Deletes a checkpoint. Buffers that were restored from it keep their bytes."""
        self._json("DELETE", path_of("checkpoints", name))
