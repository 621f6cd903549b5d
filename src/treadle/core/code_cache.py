"""Compiled code kept between runs: checked before it is used, private, bounded.

    cache = CodeCache(cache_folder(options), options.cache_limit)
    path = cache.find(key)                # verified now, or None
    path = cache.put(key, made, note)     # one rename puts the whole entry in place

    FOLDER/compiled/            owner only
      KEY/code.so               the shared library
      KEY/about.json            its size, its SHA-256 and the command that made it
      making-*, gone-*          work in progress, entries on their way out

A key says everything that decides the content (see toolchain.py), so an entry is never changed,
only made, found and thrown away. What is damaged, belongs to somebody else or can be written by
somebody else is not found, and is replaced by the next `put`. Any number of processes may use one
folder without locks: entries come and go by renaming, and a library that is loaded stays loaded
when its file goes.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass

from treadle.core.errors import UsageError

VERSION = 1
"""Part of every entry and every key: what another layout left behind is not understood."""
FOLDER, CODE, ABOUT = "compiled", "code.so", "about.json"
MAKING, GONE = "making-", "gone-"
LONGEST_ABOUT = 1 << 20
STALE_SECONDS = 24 * 3600.0
"""Work in progress that is older was left by a process that died."""
SWEEP_ONE_IN = 16
KEPT_SHARE = 0.9
"""Sweeping looks at every entry: one `put` in so many does it, and then makes some room."""
OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class Entry:
    """One kept library: how large it is and when it was last asked for."""

    key: str
    bytes: int
    used: float
    """Seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class CodeCache:
    """The compiled code under one folder; `limit` is how many bytes it may keep."""

    root: str
    limit: int

    @property
    def folder(self) -> str:
        """Where the entries are."""
        return os.path.join(os.path.abspath(self.root), FOLDER)

    def find(self, key: str) -> str | None:
        """The path of the library, just verified; None if there is none that may be loaded."""
        if not os.path.lexists(self.folder):
            return None
        self._check_folders()
        if not self.is_whole(key):
            return None
        place = os.path.join(self.folder, key)
        with contextlib.suppress(OSError):  # used now: the oldest uses are evicted first
            os.utime(os.path.join(place, ABOUT))
        return os.path.join(place, CODE)

    def problem(self) -> str | None:
        """Why nothing in the folder may be used, if that is so."""
        try:
            if os.path.lexists(self.folder):
                self._check_folders()
        except UsageError as e:
            return e.message
        return None

    def is_whole(self, key: str) -> bool:
        """Whether the entry may be loaded: ours alone, and exactly what was put there."""
        return _is_whole(os.path.join(self.folder, key))

    @contextlib.contextmanager
    def workshop(self) -> Iterator[str]:
        """A folder of our own, on the same disk, to make an entry in."""
        with _named(self.folder):
            os.makedirs(self.root, mode=0o700, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                os.mkdir(self.folder, mode=0o700)
            self._check_folders()
            if stat.S_IMODE(os.stat(self.folder).st_mode) != 0o700:
                os.chmod(self.folder, 0o700)
            work = tempfile.mkdtemp(prefix=MAKING, dir=self.folder)
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def put(self, key: str, made: str, note: str, work: str) -> str:
        """Keep the library `made` in the folder `work`; gives the path it is found at.

        If another process was faster, its entry is as good and stays.
        """
        with _named(self.folder):
            entry, place = os.path.join(work, "entry"), os.path.join(self.folder, key)
            size = _prepare(made, note, entry)
            if not _is_whole(entry):
                raise _unusable(self.folder, "what is written there is not kept private and whole")
            while not _moved(entry, place):
                if self.find(key) is not None:
                    break
                self.discard(key)
            _sync(self.folder)
        if SWEEP_ONE_IN * size > self.limit or int(key[:4], 16) % SWEEP_ONE_IN == 0:
            self.sweep(keep=key)
        return os.path.join(place, CODE)

    def discard(self, key: str) -> None:
        """Throw an entry away, if it is still there; whoever has loaded it keeps it."""
        with _named(self.folder), contextlib.suppress(FileNotFoundError):
            gone = tempfile.mkdtemp(prefix=GONE, dir=self.folder)
            try:
                os.rename(os.path.join(self.folder, key), os.path.join(gone, "entry"))
            finally:
                shutil.rmtree(gone, ignore_errors=True)

    def entries(self) -> list[Entry]:
        """All entries, the one that was used last first."""
        found = []
        for name in self._names():
            if not name.startswith((MAKING, GONE)):
                place = os.path.join(self.folder, name)
                found.append(Entry(name, *_size_and_use(place)))
        return sorted(found, key=lambda entry: (-entry.used, entry.key))

    def sweep(self, keep: str = "") -> int:
        """Throw away what was not used for longest until the rest fits; how many went."""
        for name in self._names():
            place = os.path.join(self.folder, name)
            if name.startswith((MAKING, GONE)) and _age(place) > STALE_SECONDS:
                shutil.rmtree(place, ignore_errors=True)
        entries = self.entries()
        total = sum(entry.bytes for entry in entries)
        if total <= self.limit:
            return 0
        gone = 0
        for entry in reversed(entries):
            if total <= KEPT_SHARE * self.limit:
                break
            if entry.key == keep:
                continue
            with contextlib.suppress(UsageError):  # somebody else's: it stays, the rest goes on
                self.discard(entry.key)
                total -= entry.bytes
                gone += 1
        return gone

    def clear(self) -> list[Entry]:
        """Throw everything away, entries that cannot be used included; what there was."""
        if not os.path.lexists(self.folder):
            return []
        self._check_folders()
        entries = self.entries()
        with _named(self.folder):
            for name in self._names():
                place = os.path.join(self.folder, name)
                if os.path.isdir(place) and not os.path.islink(place):
                    shutil.rmtree(place)
                else:
                    os.unlink(place)
        return entries

    def _names(self) -> list[str]:
        try:
            return sorted(os.listdir(self.folder))
        except FileNotFoundError:
            return []
        except OSError as e:
            raise _unusable(self.folder, e.strerror or str(e)) from None

    def _check_folders(self) -> None:
        """Refuse folders through which somebody else could put code under our eyes."""
        for path, status in ((self.root, os.stat), (self.folder, os.lstat)):
            with _named(path):
                about = status(path)
            if not stat.S_ISDIR(about.st_mode):
                raise _unusable(path, "it is not a folder")
            if path == self.folder and not _is_ours(about):
                raise _unusable(path, f"it belongs to user {about.st_uid}")
            is_shared = about.st_mode & OTHERS_MAY_WRITE and not about.st_mode & stat.S_ISVTX
            if path == self.root and is_shared:
                raise _unusable(path, "others may write to it (chmod go-w)")


def _prepare(made: str, note: str, entry: str) -> int:
    """Make the folder of an entry, private and on disk before anybody can see it; its size."""
    os.mkdir(entry, mode=0o700)
    code, about = os.path.join(entry, CODE), os.path.join(entry, ABOUT)
    os.rename(made, code)
    os.chmod(code, 0o600)
    with open(code, "rb") as f:
        content = f.read()
        os.fsync(f.fileno())
    card = {"treadle_code": VERSION, "bytes": len(content), "sha256": _digest(content)}
    opened = os.open(about, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(opened, "w", encoding="utf-8") as text:
        json.dump({**card, "command": note}, text)
        text.flush()
        os.fsync(text.fileno())
    _sync(entry)
    return len(content)


def _moved(entry: str, place: str) -> bool:
    """Put a finished entry in its place; False if something is there already."""
    try:
        os.rename(entry, place)
    except OSError as e:
        if e.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            return False
        raise
    return True


def _is_whole(place: str) -> bool:
    """Whether an entry is ours alone and holds exactly what was put there."""
    try:
        about = os.lstat(place)
        if not (stat.S_ISDIR(about.st_mode) and _is_private(about)):
            return False
        card = json.loads(_read_private(os.path.join(place, ABOUT), LONGEST_ABOUT))
        if not isinstance(card, dict) or card.get("treadle_code") != VERSION:
            return False
        size = card.get("bytes")
        if not isinstance(size, int):
            return False
        content = _read_private(os.path.join(place, CODE), size)
        return len(content) == size and _digest(content) == card.get("sha256")
    except (OSError, ValueError, RecursionError):
        return False


def _size_and_use(place: str) -> tuple[int, float]:
    """Bytes of an entry, however damaged, and when it was last used (0 if nobody knows)."""
    total, used = 0, 0.0
    for name in (CODE, ABOUT):
        with contextlib.suppress(OSError):
            about = os.lstat(os.path.join(place, name))
            total += about.st_size
            used = about.st_mtime if name == ABOUT else used
    return total, used


def _read_private(path: str, most: int) -> bytes:
    """The content of a file that only we can write; ValueError if it is not that."""
    opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    with open(opened, "rb") as f:
        about = os.fstat(f.fileno())
        if not (stat.S_ISREG(about.st_mode) and _is_private(about)) or about.st_size > most:
            raise ValueError(path)
        return f.read()


def _is_private(about: os.stat_result) -> bool:
    return _is_ours(about) and not about.st_mode & OTHERS_MAY_WRITE


def _is_ours(about: os.stat_result) -> bool:
    return about.st_uid == os.geteuid()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _age(path: str) -> float:
    try:
        return time.time() - os.lstat(path).st_mtime
    except OSError:
        return 0.0


def _sync(folder: str) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@contextlib.contextmanager
def _named(path: str) -> Iterator[None]:
    """Failures of the system as errors that name the folder and the cause."""
    try:
        yield
    except OSError as e:
        raise _unusable(str(e.filename or path), e.strerror or str(e)) from None


def _unusable(folder: str, reason: str) -> UsageError:
    return UsageError(
        f"the cache folder cannot be used: {folder}: {reason}",
        code="TOOL004",
        notes=["another one is named by the option cache_dir (variable TREADLE_CACHE_DIR)"],
    )
