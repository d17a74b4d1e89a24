"""Transfers that continue where a connection broke: uploads by Upload-Offset (the IETF draft on resumable uploads),
downloads by If-Range."""
from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence
from urllib.parse import urlsplit

from ._asker import Asker, tagged
from ._http import Answer, Piece, Progress
from .errors import BrokenAnswer, Error, Unreachable

RESUME_BYTES = 4 << 20  # smaller bodies are sent again from the beginning
PART = {"Content-Type": "application/partial-upload"}


def _shifted(progress: Optional[Progress], at: int, total: int) -> Optional[Progress]:
    return None if progress is None else lambda done, _: progress(at + done, total)


class Upload:
    """One upload. target: PUT of the whole, with its query; fields: its conditions."""

    def __init__(self, asker: Asker, target: str, fields: Mapping[str, str], pieces: Sequence[Piece],
                 progress: Optional[Progress], patience: float) -> None:
        self._asker, self._target, self._fields, self._pieces = asker, target, dict(fields), pieces
        self._progress, self._patience, self._at, self._place = progress, patience, 0, ""
        self._total = sum(map(len, pieces))

    def _rest(self) -> List[Piece]:
        """What is to be sent still."""
        left, at = [], self._at
        for piece in self._pieces:
            if at < len(piece):
                left.append(piece[at:])
            at = max(at - len(piece), 0)
        return left

    def run(self) -> Any:
        """The buffer's metadata; None if only the answer was lost."""
        retry, turn = self._asker._transport.retry, 0
        self._begin()
        while True:
            try:
                return self._append()
            except Error as e:
                if not retry.permits(turn, e):
                    self._asker._discard(self._place)
                    raise
                retry.pause(turn, e)
                before = self._at
                if self._arrived():
                    return None
                turn = turn + 1 if self._at <= before else 0
            except BaseException:
                self._asker._discard(self._place)
                raise

    def _begin(self) -> None:
        fields = {**self._fields, "Upload-Complete": "?0", "Upload-Length": str(self._total)}
        answer = self._asker._ask("PUT", self._target, fields, [memoryview(b"")], patience=self._patience)
        answer.read()
        self._place, self._at = urlsplit(answer.header("Location") or "").path, 0
        if not self._place:
            raise answer.broken("the answer names no upload")

    def _append(self) -> Any:
        fields = {**PART, "Upload-Offset": str(self._at), "Upload-Complete": "?1"}
        # Not by way of Asker._ask: what was sent already is not sent again.
        answer = self._asker._transport.ask("PATCH", self._place, fields, self._rest(),
                                            _shifted(self._progress, self._at, self._total), self._patience)
        return tagged(answer, answer.json())

    def _arrived(self) -> bool:
        """Looks where the upload stands. True if it is complete, and only the answer was lost."""
        try:
            answer = self._asker._ask("HEAD", self._place, {})
        except Error as e:
            if e.status != 404:
                raise
            self._begin()  # the daemon was started again, or the upload took too long
            return False
        answer.finish()
        self._at = int(answer.header("Upload-Offset") or 0)
        return answer.header("Upload-Complete") == "?1"


def receive(asker: Asker, target: str, fields: Dict[str, str], answer: Answer, view: memoryview,
            progress: Optional[Progress]) -> None:
    """Receives the body of a download, and the rest of it by further requests."""
    retry, turn, have, total = asker._transport.retry, 0, 0, len(view)
    tag, shape = answer.header("ETag") or "", (answer.header("Gpubuf-Dtype"), answer.header("Gpubuf-Shape"))
    while True:
        try:
            answer.read_into(view[have:], _shifted(progress, have, total))
            answer.finish()
            return
        except (BrokenAnswer, Unreachable) as e:
            if not retry.permits(turn, e):
                raise
            turn = 0 if answer.received else turn + 1
            have += answer.received
            retry.pause(turn, e)
            strong = bool(tag) and not tag.startswith("W/")
            more = {"Range": f"bytes={have}-", "If-Range": tag} if strong and 0 < have < total else {}
            answer = asker._ask("GET", target, {**fields, **more})
            if (answer.status == 206 and (answer.header("Content-Range") or "").startswith(f"bytes {have}-")
                and answer.length == total - have):
                continue
            # The buffer was replaced: all of the new content, if it has the same layout.
            have, tag = 0, answer.header("ETag") or ""
            if answer.status != 200 or answer.length != total or (answer.header("Gpubuf-Dtype"),
                                                                  answer.header("Gpubuf-Shape")) != shape:
                answer.close()
                raise
