"""``verify --execute``: the rules against a run of the given sources themselves.

The one place from which code of a given source is started, in a process of its own, and only where it was asked for.
A git repository is read at its release: the packages are unpacked into a temporary folder, which is removed after.
"""

from __future__ import annotations

import io
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ..knowledge.model import Knowledge, Revision
from .oracle.fuzz import Report, pinned_versions
from .oracle.fuzz import run as compare
from .oracle.runner import Oracle, Sources
from .source import BRIDGE, CORE, Folder, Git, Source, SourceError, git_bytes
from .store import load_evidence
from .verify import Progress

_PACKAGES = {BRIDGE: "src/megatron", CORE: "megatron"}


def execute(
    knowledge: Knowledge,
    sources: Mapping[str, Source],
    revision: Revision,
    python: str,
    count: int,
    tell: Callable[[str], None],
    progress: Progress = lambda stage, share: None,
) -> Report:
    """Ask the real code about configurations, and compare with the rules.

    The configurations are the first of the recorded run of the release, where there is one.

    Args:
        knowledge: the rules.
        sources: opened, by repository.
        revision: what they are taken for.
        python: an interpreter that has torch.
        count: how many configurations.
        tell: is told what will run, before it does.
        progress: called with what is done and the share done.

    Raises:
        SourceError: no source of Megatron Core, or git can't unpack one.
        RequestError: the interpreter can't be started or can't import the sources.
    """
    if CORE not in sources:
        raise SourceError(str(sources[BRIDGE]), "has no Megatron Core beside it", "Give --core-source.")
    recorded = [x for x in load_evidence(Path(knowledge.root)).executions if x.revision == revision.tag]
    seed = next((int(x.id.rpartition("seed")[2]) for x in recorded if x.id.rpartition("seed")[2].isdigit()), 1)
    with _folders(sources) as folders:
        found = Sources.find(folders[BRIDGE], folders[CORE], pinned_versions(revision), revision.tag)
        oracle = Oracle(found, python)
        tell(f"{oracle.describe()}\n{count} configurations, seed {seed}.")
        with oracle:
            return compare(
                knowledge,
                revision,
                oracle,
                seed=seed,
                count=count,
                progress=lambda done, wrong: progress(f"{done}/{count} run", done / max(1, count)),
            )


@contextmanager
def _folders(sources: Mapping[str, Source]) -> Iterator[dict[str, Path]]:
    """A folder with the package of each source."""
    with tempfile.TemporaryDirectory(prefix="mbridge-sources-") as temporary:
        out = {}
        for repo, source in sources.items():
            if isinstance(source, Folder):
                out[repo] = source.root
                continue
            assert isinstance(source, Git)
            out[repo] = Path(temporary) / repo.rpartition("/")[2]
            packed = git_bytes(source.root, "archive", "--format=tar", source.commit, "--", _PACKAGES[repo])
            with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
                archive.extractall(out[repo], filter="data")
        yield out
