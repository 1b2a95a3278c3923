"""Reads parts of weight files into their places: several threads, each byte copied once, nothing kept mapped.

Files are read with preadv(2) straight into the tensors and not mapped. A mapped file that shrinks or whose disk fails
ends the process with SIGBUS and no word of why; a read returns an error, which becomes a sentence. It is also faster:
no page faults, and the pages of the cache never count as our memory.

A read that does not return is noticed by the caller, who waits for news of any progress at most PATIENCE_S and then
says for which files it waited. Slow is no error as long as a piece arrives now and then.
"""

import contextlib
import os
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from firstlight.embedded.errors import EngineError, ModelNotUsable, WaitTimedOut
from firstlight.embedded.model.patience import PATIENCE_S
from firstlight.embedded.model.safetensors_file import COPY_AGAIN, DTYPE_BYTES, StoredTensor

PIECE = 2 << 20
"""Bytes read at once, and between two signs of progress."""

PAGE_BYTES = 4096
TORCH_DTYPES = {
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I32": torch.int32,
    "I8": torch.int8,
}

Count = Callable[[int, int, str], None]
"""Called with (done, total, unit)."""


@dataclass(frozen=True)
class Cut:
    """Some rows and columns of a stored matrix; a vector is a matrix of one row."""

    source: StoredTensor
    rows: slice
    columns: slice

    @classmethod
    def of(cls, source: StoredTensor, rows: slice = slice(None), columns: slice = slice(None)) -> "Cut":
        height, width = _matrix_shape(source)
        return cls(source, slice(*rows.indices(height)[:2]), slice(*columns.indices(width)[:2]))

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.stop - self.rows.start, self.columns.stop - self.columns.start

    @property
    def bytes(self) -> int:
        return self.shape[0] * self.shape[1] * DTYPE_BYTES[self.source.dtype]

    @property
    def dtype(self) -> torch.dtype:
        return TORCH_DTYPES[self.source.dtype]

    @property
    def piece_rows(self) -> int:
        """Rows that make about PIECE bytes."""
        return max(1, PIECE * self.shape[0] // max(1, self.bytes))

    def part(self, rows: slice) -> "Cut":
        """Some of the rows, counted from the first of this cut."""
        return Cut(self.source, slice(self.rows.start + rows.start, self.rows.start + rows.stop), self.columns)

    def pieces(self) -> Iterator[tuple["Cut", slice]]:
        """The cut in runs of rows of about PIECE bytes."""
        for start in range(0, self.shape[0], self.piece_rows):
            rows = slice(start, min(start + self.piece_rows, self.shape[0]))
            yield self.part(rows), rows


class Reader:
    """Reads for one thread. `waits_for` is the file that a read is under way from."""

    def __init__(self, files: dict[Path, int], tell: Callable[[int], None]) -> None:
        self._files = files
        self._tell = tell
        self._scratch = torch.empty(0, dtype=torch.uint8)
        self.waits_for: Path | None = None

    def matrix(self, cut: Cut) -> Tensor:
        """A copy of the cut in its own dtype."""
        place = torch.empty(cut.shape, dtype=cut.dtype)
        self.fill(cut, place)
        return place

    def fill(self, cut: Cut, place: Tensor) -> None:
        """Read the cut into `place`, a matrix of its shape, converting the dtype on the way."""
        for piece, rows in cut.pieces():
            self._fill(piece, place[rows])
            self._tell(piece.bytes)

    def _fill(self, cut: Cut, place: Tensor) -> None:
        width = _matrix_shape(cut.source)[1]
        row_bytes = width * DTYPE_BYTES[cut.source.dtype]
        start = cut.source.start + cut.rows.start * row_bytes
        whole_rows = cut.shape[1] == width
        if place.dtype == cut.dtype and whole_rows and place.is_contiguous():
            self._read(cut.source.file, start, place)
        elif place.dtype == cut.dtype and cut.shape[1] * place.element_size() >= PAGE_BYTES:
            self._read_row_by_row(cut, start, row_bytes, place)
        else:
            # Parts of rows shorter than a page: the disk gives the whole page anyway.
            scratch = self._room(cut.shape[0] * row_bytes)
            self._read(cut.source.file, start, scratch)
            place.copy_(scratch.view(cut.dtype).view(-1, width)[:, cut.columns])

    def _read_row_by_row(self, cut: Cut, start: int, row_bytes: int, place: Tensor) -> None:
        start += cut.columns.start * place.element_size()
        for index in range(cut.shape[0]):
            self._read(cut.source.file, start + index * row_bytes, place[index])

    def _room(self, size: int) -> Tensor:
        if len(self._scratch) < size:
            self._scratch = torch.empty(size, dtype=torch.uint8)
        return self._scratch[:size]

    def _read(self, path: Path, start: int, place: Tensor) -> None:
        """Fill a contiguous tensor from the file's bytes at `start`."""
        target = place.view(-1).view(torch.uint8).numpy().data
        done = 0
        self.waits_for = path
        while done < len(target):
            try:
                got = os.preadv(self._files[path], [target[done:]], start + done)
            except OSError as error:
                raise ModelNotUsable(f"weight file {path} cannot be read: {error.strerror}", COPY_AGAIN) from error
            if not got:
                raise ModelNotUsable(
                    f"weight file {path} was cut short at byte {start + done} while it was read", COPY_AGAIN
                )
            done += got
        self.waits_for = None


Job = Callable[[Reader], None]


def read_all(jobs: Iterable[Job], files: Iterable[Path], total: int, threads: int, count: Count) -> None:
    """Run the jobs on some threads; `count(done, total, "bytes")` after each piece, in the calling thread.

    Raises what a job raises, and WaitTimedOut when nothing at all has come for PATIENCE_S.
    """
    crew = _Crew(jobs, _open_all(files), threads)
    done = 0
    count(done, total, "bytes")
    with _one_torch_thread_each():
        try:
            for piece in crew.pieces():
                done += piece
                count(done, total, "bytes")
        finally:
            crew.stop()


@contextlib.contextmanager
def _one_torch_thread_each() -> Iterator[None]:
    """Threads that begin meanwhile compute alone: with helpers of their own they would outnumber the CPUs."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _open_all(paths: Iterable[Path]) -> dict[Path, int]:
    opened: dict[Path, int] = {}
    try:
        for path in paths:
            opened[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        _close_all(opened)
        raise ModelNotUsable(f"weight file {path} cannot be opened: {error.strerror}", COPY_AGAIN) from error
    return opened


def _close_all(opened: dict[Path, int]) -> None:
    for descriptor in opened.values():
        os.close(descriptor)


class _Crew:
    """Threads that work off the jobs in order. A thread that never comes back is left behind, not joined."""

    def __init__(self, jobs: Iterable[Job], files: dict[Path, int], threads: int) -> None:
        self._jobs = iter(jobs)
        self._files = files
        self._working = threads
        self._lock = threading.Lock()
        self._stopped = False
        self._news: queue.SimpleQueue[int | BaseException | None] = queue.SimpleQueue()
        self._readers = [Reader(files, self._tell) for _ in range(threads)]
        self._threads = [
            threading.Thread(target=self._work, args=(reader,), name=f"weights-{index}", daemon=True)
            for index, reader in enumerate(self._readers)
        ]

    def pieces(self) -> Iterator[int]:
        """Bytes of each piece as it arrives, until all jobs are done."""
        for thread in self._threads:
            thread.start()
        working = len(self._threads)
        while working:
            news = self._next()
            if isinstance(news, BaseException):
                raise news
            if news is None:
                working -= 1
            else:
                yield news

    def stop(self) -> None:
        self._stopped = True

    def _next(self) -> int | BaseException | None:
        try:
            return self._news.get(timeout=PATIENCE_S)
        except queue.Empty:
            files = sorted({str(reader.waits_for) for reader in self._readers if reader.waits_for})
            raise WaitTimedOut(", ".join(files) or "the threads that read weights", PATIENCE_S) from None

    def _tell(self, piece: int) -> None:
        if self._stopped:
            raise _Stopped
        self._news.put(piece)

    def _work(self, reader: Reader) -> None:
        news: BaseException | None = None
        try:
            while (job := self._take()) is not None:
                job(reader)
        except BaseException as error:  # noqa: BLE001 (told to the caller, who raises it)
            news = error
        self._leave()
        self._news.put(news)

    def _leave(self) -> None:
        """The last one out closes the files: after an error, others may still be reading."""
        with self._lock:
            self._working -= 1
            if not self._working:
                _close_all(self._files)

    def _take(self) -> Job | None:
        with self._lock:
            return None if self._stopped else next(self._jobs, None)


class _Stopped(EngineError):
    """Nobody waits for the weights any more."""

    def __init__(self) -> None:
        super().__init__("the reading of weights was stopped")


def _matrix_shape(source: StoredTensor) -> tuple[int, int]:
    height, width = (1, *source.shape)[-2:]
    return height, width
