"""Two MPI libraries meet: in one process, or mpi4py was built for one and the launcher speaks the other, or a PMI
that it does not."""

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import chain

from firstlight.core.gap import Gap
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, supports
from firstlight.diagnose.deaths import first_end
from firstlight.diagnose.devices import some_in
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, libraries, said, variable

_NO_PMI = r"not built with SLURM's PMI support|\bPMI2?_Init failed|PMIX ERROR: \S*(UNREACH|VERSION|NOT.SUPPORTED)"
_MPICH = re.compile(r"/libmpich\.so|/libmpi\.so\.12\b")
"""Intel's is of the same family."""
_MPI_CALLS = r"\bP?MPI_Init|mpi4py|ompi_|opal_|PMI\w*_|MPIR?_|prte|\bMPI\b"


def _two_in_mpi(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from both(_two(scene), some_in(scene, _MPI_CALLS))


def _other_launcher(scene: Scene) -> Iterator[Sighting | Gap]:
    """Open MPI has launched several ranks, and what they map is an MPICH, which does not know of it."""
    yield from both(both(_launched(scene), _mpich(scene)), some_in(scene, _MPI_CALLS))


def _launched(scene: Scene) -> Iterator[Sighting]:
    yield from (one for one in variable(scene, "OMPI_COMM_WORLD_SIZE") if not one.quote.endswith("=1"))


def _mpich(scene: Scene) -> Iterator[Sighting | Gap]:
    found = list(libraries(scene, "mpi"))
    yield from (one for one in found if isinstance(one, Gap))
    mapped = [one for one in found if not isinstance(one, Gap)]
    if mapped and all(_MPICH.search(library.path) for _, library in mapped):
        for one, library in mapped:
            yield Sighting(
                shortened(f"{scene.name(one.process.id.pid)}: {library.path}"), (one.process.id.pid,), library.path
            )


def _without_pmi(scene: Scene) -> Iterator[Sighting | Gap]:
    """MPI tells that it does not speak the launcher's language (PMI, PMIx)."""
    told = (one._replace(what="one without the launcher's PMI") for one in said(scene, _NO_PMI))
    yield from both(told, chain(first_end(scene), some_in(scene, _MPI_CALLS)))


def _two(scene: Scene) -> Iterator[Sighting | Gap]:
    """One process maps two MPI libraries from different folders, or ranks different ones."""
    by_file: dict[str, list[int]] = defaultdict(list)
    for found in libraries(scene, "mpi"):
        if isinstance(found, Gap):
            yield found
        elif "libmpicxx" not in found[1].path:
            by_file[found[1].path].append(found[0].process.id.pid)
    if len({path.rsplit("/", 1)[0] for path in by_file}) > 1:
        for path, pids in by_file.items():
            yield Sighting(shortened(f"{scene.names.all(tuple(dict.fromkeys(pids)))}: {path}"), what=path)


CAUSE = Cause(
    id="mpi_mismatch",
    nature=Nature.DIVERGED,
    title="different MPI libraries are loaded, {what} among them",
    clues=(
        supports("Are two MPI libraries loaded while somebody is in MPI?", _two_in_mpi),
        supports("Did Open MPI launch ranks that map an MPICH?", _other_launcher),
        supports("Does MPI say that it lacks the launcher's PMI?", _without_pmi),
    ),
    advice=Advice(
        confirm=("python -c 'import mpi4py.MPI as m; print(m.Get_library_version())', and mpirun --version.",),
        work_around=("Start with the mpirun of the library that mpi4py was built for; unset LD_LIBRARY_PATH.",),
        repair=("pip install --no-binary mpi4py --force-reinstall mpi4py, with that MPI's mpicc in PATH.",),
    ),
    traps=("Each rank then believes to be rank 0 of 1, and waits for nobody, or for all.",),
)
