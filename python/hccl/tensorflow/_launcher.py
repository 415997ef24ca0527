"""Sets RANK_SIZE and RANK_ID, which scripts for Ascend read before the ranks join."""

from __future__ import annotations

import os
from typing import Iterator, NamedTuple, Optional

from hccl import _variables


class _Launcher(NamedTuple):
    present: tuple[str, ...]  # variables that show the launcher; the first has the rank
    sizes: tuple[str, ...]
    given: tuple[str, ...]  # variables; the launcher is the nearest ancestor with other values


# mpirun (PMIx), torchrun, Slurm and hydra, as in hccl/join/launcher.cc. PMIx without Open MPI does
# not give the number of ranks. A batch script of Slurm has SLURM_PROCID, too, but no SLURM_STEP_ID.
_LAUNCHERS = (
    _Launcher(("PMIX_RANK",), ("OMPI_COMM_WORLD_SIZE",), ("PMIX_RANK", "PMIX_NAMESPACE")),
    _Launcher(("RANK",), ("WORLD_SIZE",), ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")),
    _Launcher(
        ("SLURM_PROCID", "SLURM_STEP_ID"),
        ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
        ("SLURM_PROCID", "SLURM_STEP_ID", "SLURM_JOB_ID"),
    ),
    _Launcher(("PMI_RANK",), ("PMI_SIZE",), ("PMI_RANK", "PMI_SIZE", "PMI_FD")),
)


def tell_scripts() -> None:
    """Sets RANK_SIZE and RANK_ID to the numbers of the innermost launcher. Sets neither if one of
    them has another value already, or if a rank table or CM_WORKER_SIZE describes the ranks."""
    place = None if _variables.value("RANK_TABLE_FILE") or "CM_WORKER_SIZE" in os.environ else _place()
    if place is None:
        return
    told = dict(zip(("RANK_ID", "RANK_SIZE"), place))
    if all(os.environ.get(name, value) == value for name, value in told.items()):
        os.environ.update(told)


def _place() -> Optional[tuple[str, str]]:
    """Returns the rank and the number of ranks that the innermost launcher set, or None if there is
    no launcher, or if its variables contradict each other or lack the number of ranks."""
    present = [each for each in _LAUNCHERS if all(map(_variables.value, each.present))]
    line = list(_environments()) if len(present) > 1 else []
    depths = [_depth(each, line) for each in present]
    inner = [each for each, depth in zip(present, depths) if depth == min(depths)]
    ranks = {_variables.value(each.present[0]) for each in inner}
    sizes = {next(filter(None, map(_variables.value, each.sizes)), "") for each in inner} - {""}
    if len(ranks) != 1 or len(sizes) != 1:
        return None
    rank, size = ranks.pop(), sizes.pop()
    known = rank.isdigit() and size.isdigit() and int(rank) < int(size)
    return (rank, size) if known else None


def _depth(launcher: _Launcher, line: list[dict[str, str]]) -> int:
    """Returns the index, in the line of ancestors, of the process that set the launcher's
    variables: the nearest with other values. Returns the length of the line if there is none."""
    own = [os.environ.get(name) for name in launcher.given]
    other = ([each.get(name) for name in launcher.given] != own for each in line)
    return next((depth for depth, differs in enumerate(other) if differs), len(line))


def _environments() -> Iterator[dict[str, str]]:
    """Yields the variables with which this process and then each ancestor were started."""
    process = os.getpid()
    while process > 0:
        try:
            with open(f"/proc/{process}/environ", "rb") as file:
                pairs = os.fsdecode(file.read()).split("\0")
            with open(f"/proc/{process}/stat", "rb") as file:
                process = int(file.read().rpartition(b")")[2].split()[1])
        except OSError:  # the process is another user's, or has ended
            return
        yield dict(pair.partition("=")[::2] for pair in pairs if pair)
