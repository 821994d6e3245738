"""Where source is read from: a plain checkout, a git repository at a release, or an installed wheel.

Nothing that is read here is ever executed: files are bytes, and git is only asked for objects, without hooks, filters,
network or a look at the work tree.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from ..errors import AdvisorError

BRIDGE = "NVIDIA-NeMo/Megatron-Bridge"
CORE = "NVIDIA/Megatron-LM"
MAX_BYTES = 5_000_000

Layout = Literal["repository", "wheel"]
_MARK: Mapping[str, Mapping[Layout, str]] = {
    BRIDGE: {"repository": "src/megatron/bridge/__init__.py", "wheel": "megatron/bridge/__init__.py"},
    CORE: {"repository": "megatron/core/__init__.py", "wheel": "megatron/core/__init__.py"},
}
_NAME = {BRIDGE: "Megatron Bridge", CORE: "Megatron Core"}
_VERSION = re.compile(r"^(MAJOR|MINOR|PATCH|PRE_RELEASE)\s*=\s*[\"']?([A-Za-z0-9.]*)[\"']?\s*$", re.MULTILINE)


class SourceError(AdvisorError):
    """The given source can't be used; says why, and what to give instead."""

    def __init__(self, where: str, reason: str, way_out: str) -> None:
        self.where, self.reason, self.way_out = where, reason, way_out
        super().__init__(f"{where}: {reason}. {way_out}")


class Source(Protocol):
    """Files of one repository at one state."""

    @property
    def repo(self) -> str:
        """``owner/name`` as citations write it."""

    @property
    def layout(self) -> Layout:
        """Whether paths are those of the repository or of the wheel."""

    @property
    def commit(self) -> str | None:
        """The commit that is read, where git tells."""

    def read(self, path: str) -> bytes | None:
        """The bytes of a file by its path in the repository; None where there is none."""

    def files(self) -> Iterable[str]:
        """Paths of all files, as in the repository."""

    def __str__(self) -> str:
        """What is read, for people."""


@dataclass(frozen=True)
class Folder:
    """A plain checkout, or the site-packages folder of an installed wheel.

    Attributes:
        root: the folder.
    """

    repo: str
    root: Path
    layout: Layout
    commit: str | None = None

    def read(self, path: str) -> bytes | None:
        place = self.root / self._local(path)
        try:
            if not place.is_file():
                return None
            if place.stat().st_size > MAX_BYTES:
                raise SourceError(str(place), f"is larger than {MAX_BYTES:,} bytes", "Give the release's own source.")
            return place.read_bytes()
        except OSError as error:
            raise SourceError(str(place), f"can't be read ({error.strerror})", "Make it readable.") from None

    def files(self) -> Iterable[str]:
        start = self.root / ("megatron" if self.layout == "wheel" or self.repo == CORE else "")
        for folder, names, found in os.walk(start):
            names[:] = sorted(n for n in names if not n.startswith(".") and n != "__pycache__")
            for name in sorted(found):
                path = (Path(folder) / name).relative_to(self.root).as_posix()
                yield f"src/{path}" if self.repo == BRIDGE and self.layout == "wheel" else path

    def _local(self, path: str) -> str:
        return path.removeprefix("src/") if self.layout == "wheel" else path

    def __str__(self) -> str:
        return str(self.root)


@dataclass
class Git:
    """A git repository at a commit; the work tree is neither read nor touched."""

    repo: str
    root: Path
    commit: str
    shown: str  # what was asked for: a tag or a commit
    layout: Layout = "repository"
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def read(self, path: str) -> bytes | None:
        process = self._batch()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{self.commit}:{path}\n".encode())
        process.stdin.flush()
        head = process.stdout.readline().split()
        if len(head) != 3 or head[1] not in (b"blob", b"tree", b"commit"):
            if head and head[-1] == b"missing":
                return None
            raise SourceError(str(self), f"git can't read {path}", "Is the repository complete? Try git fsck.")
        data = process.stdout.read(int(head[2]) + 1)[:-1]
        return data if head[1] == b"blob" else None

    def files(self) -> Iterable[str]:
        return git(self.root, "ls-tree", "-r", "-z", "--name-only", self.commit).split("\0")[:-1]

    def _batch(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = subprocess.Popen(
                [*_git(self.root), "cat-file", "--batch"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=_environment(),
            )
        return self._process

    def close(self) -> None:
        """Stop the process that reads objects."""
        if self._process is not None:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.close()
            self._process.stdout.close()
            self._process.wait()
            self._process = None

    def __del__(self) -> None:
        self.close()

    def __str__(self) -> str:
        return f"{self.root} at {self.shown}"


def open_source(repo: str, folder: Path, at: str | None = None) -> Source:
    """The source of Bridge or Core under a folder.

    Args:
        repo: :data:`BRIDGE` or :data:`CORE`.
        folder: a checkout, a git repository (with or without work tree), or a site-packages folder.
        at: tag or commit to read from git; None reads the files as they lie. A folder that isn't a git repository is
            read as it lies in any case.

    Raises:
        SourceError: there is no such folder, it isn't that project, or git doesn't have the commit.
    """
    name, root = _NAME[repo], folder.expanduser()
    if not root.is_dir():
        reason = "isn't a folder" if root.exists() else "doesn't exist"
        raise SourceError(str(folder), reason, f"Give a checkout or an installed package of {name}.")
    if not os.access(root, os.R_OK | os.X_OK):
        raise SourceError(str(folder), "can't be read", "Make it readable.")
    root = root.resolve()
    repository = _is_repository(root)
    if at is not None and repository:
        return _at(repo, root, at)
    for layout, mark in _MARK[repo].items():
        if (root / mark).is_file():
            head = git(root, "rev-parse", "--verify", "--quiet", "HEAD^{commit}", check=False) if repository else ""
            return Folder(repo, root, layout, head.strip() or None)
    if repository and not (root / ".git").exists():
        raise SourceError(str(folder), "is a git repository without files", "Say which release with --revision.")
    marks = " or ".join(sorted(set(_MARK[repo].values())))
    raise SourceError(
        str(folder),
        f"isn't a source of {name}: it has no {marks}",
        f"Give a checkout, a git repository or the site-packages folder of {name}.",
    )


def core_beside(bridge: Source) -> Source | None:
    """Megatron Core where Bridge's own source brings it: the submodule of a checkout, or the same site-packages."""
    if not isinstance(bridge, Folder):
        return None
    root = bridge.root if bridge.layout == "wheel" else bridge.root / "3rdparty" / "Megatron-LM"
    if (root / _MARK[CORE]["repository"]).is_file():
        return Folder(CORE, root, bridge.layout)
    return None


def version_of(source: Source) -> str | None:
    """The version that the package gives itself, e.g. ``0.6.0rc1``; None where it can't be told without running it."""
    path = "src/megatron/bridge/package_info.py" if source.repo == BRIDGE else "megatron/core/package_info.py"
    raw = source.read(path)
    parts = dict(_VERSION.findall((raw or b"").decode("utf-8", "replace")))
    if not {"MAJOR", "MINOR", "PATCH"} <= parts.keys():
        return None
    return f"{parts['MAJOR']}.{parts['MINOR']}.{parts['PATCH']}{parts.get('PRE_RELEASE', '')}"


def tags(root: Path) -> list[str]:
    """The tags of a git repository."""
    return git(root, "tag", "--list").split()


def _git(root: Path) -> list[str]:
    """The start of every git command: no transport, no monitor, no hooks, also for a folder that somebody else owns."""
    settings = ("protocol.allow=never", "core.fsmonitor=false", "core.hooksPath=/dev/null", f"safe.directory={root}")
    return ["git", *(word for setting in settings for word in ("-c", setting)), "-C", str(root)]


def _environment() -> dict[str, str]:
    """No lazy fetching, no prompts, no locks, no replaced objects, and nobody else's repository."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    return {
        **kept,
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
    }


def git(root: Path, *arguments: str, check: bool = True) -> str:
    """What a git command prints, as text; the same errors as :func:`git_bytes`."""
    return git_bytes(root, *arguments, check=check).decode("utf-8", "replace")


def git_bytes(root: Path, *arguments: str, check: bool = True) -> bytes:
    """What a git command prints; nothing where it fails and ``check`` is off.

    Raises:
        SourceError: git isn't installed, or the command fails and ``check`` is on.
    """
    try:
        done = subprocess.run([*_git(root), *arguments], capture_output=True, env=_environment(), check=False)
    except FileNotFoundError:
        raise SourceError(str(root), "needs git, which isn't installed", "Install git.") from None
    if done.returncode and check:
        words = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise SourceError(str(root), f"git {arguments[0]} failed ({words[-1] if words else 'no message'})", "")
    return b"" if done.returncode else done.stdout


def _is_repository(root: Path) -> bool:
    """Whether the folder itself is a repository (not merely inside of one)."""
    return (root / ".git").exists() or ((root / "HEAD").is_file() and (root / "objects").is_dir())


def _at(repo: str, root: Path, at: str) -> Git:
    commit = git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{at}^{{commit}}", check=False).strip()
    if not commit or not git(root, "cat-file", "-t", commit, check=False):
        if git(root, "rev-parse", "--is-shallow-repository").strip() == "true":
            raise SourceError(
                str(root),
                f"is a shallow clone without {at}",
                f"Run: git fetch --depth 1 origin tag {at}"
                if at.startswith("v")
                else f"Run: git fetch --depth 1 origin {at}",
            )
        known = [t for t in tags(root) if re.fullmatch(r"v\d+\.\d+\.\d+", t)]
        raise SourceError(
            str(root),
            f"has no tag or commit {at}",
            f"It has {', '.join(known[-12:])}." if known else "Fetch it first (git fetch --tags).",
        )
    source = Git(repo, root, commit, at)
    if source.read(_MARK[repo]["repository"]) is None:
        source.close()
        raise SourceError(
            f"{root} at {at}",
            f"isn't {_NAME[repo]}: there is no {_MARK[repo]['repository']}",
            f"Give a repository of {_NAME[repo]}.",
        )
    return source


def containing(source: Source, suffix: str, word: str) -> Iterator[tuple[str, bytes]]:
    """Files whose name ends in ``suffix`` and whose text has ``word``, with their text."""
    for path in source.files():
        if path.endswith(suffix) and (raw := source.read(path)) is not None and word.encode() in raw:
            yield path, raw
