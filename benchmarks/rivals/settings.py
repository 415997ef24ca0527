"""The rivals, their launchers, and the settings in which each rival is timed. The best setting of
each rival counts."""

import os
from dataclasses import dataclass, field as default

from cases import KIB, MIB
from machine import processors

RANKS = (2, 4, 8, 16)
OWN = tuple(ranks for ranks in RANKS if ranks <= max(2, processors()))  # with these, each rank has a processor
CROWDED = tuple(ranks for ranks in RANKS if ranks not in OWN)


@dataclass(frozen=True)
class Setting:
    library: str
    name: str
    transport: str = "shm"
    arguments: tuple = ()  # arguments of the launcher
    environment: dict = default(default_factory=dict, hash=False)
    program: tuple = ()  # arguments of the timed program
    smallest: int = 0  # the setting is timed from `smallest` to `largest` bytes
    largest: int = 1 << 40
    kinds: tuple = ("allreduce", "others")
    ranks: tuple = RANKS
    pin: bool = True
    quick: bool = False  # a run with --quick times it, too
    spins: bool = False  # its ranks do not yield their processor while they wait

    @property
    def key(self):
        return f"{self.library} {self.name}"


LIBRARIES = {  # in the order of the tables
    "ompi4": "Open MPI (Debian)",
    "ompi5": "Open MPI (newest)",
    "mpich4": "MPICH (Debian)",
    "mpich5": "MPICH (newest)",
    "impi": "Intel MPI",
    "ccl": "oneCCL",
    "gloo": "Gloo (PyTorch)",
}
BF16 = ("mpich5", "impi", "ccl", "gloo")  # libraries that reduce bf16
PROGRAMS = {
    "ccl": "ccl_bench",
    **{mpi: f"mpi_bench_{mpi}" for mpi in ("ompi4", "ompi5", "mpich4", "mpich5", "impi")},
}

# Makes Open MPI take temporary memory from the heap instead of mapping fresh pages each time. That
# halves the time at 64 MiB.
KEEP_PAGES = {
    "GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=1073741824:"
    "glibc.malloc.trim_threshold=4294967295"
}
UCX = ("--mca", "pml", "ucx", "--mca", "pml_ucx_tls", "any", "--mca", "pml_ucx_devices", "any")
RABENSEIFNER = (
    "--mca",
    "coll_tuned_use_dynamic_rules",
    "1",
    "--mca",
    "coll_tuned_allreduce_algorithm",
    "6",
)
OMPI_TCP = ("--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo")
UCX_TCP = {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo"}


def _open_mpi(library):
    only = {"kinds": ("allreduce",)}
    return [
        Setting(library, "default"),
        Setting(library, "unpinned", ranks=CROWDED, pin=False),
        Setting(library, "ucx", arguments=UCX, quick=True),
        Setting(library, "ucx unpinned", arguments=UCX, ranks=CROWDED, pin=False),
        Setting(library, "raben", arguments=RABENSEIFNER, smallest=64 * KIB, **only),
        Setting(library, "ucx+raben", arguments=UCX + RABENSEIFNER, smallest=8 * KIB, **only),
        Setting(
            library,
            "sm",
            arguments=("--mca", "coll_sm_priority", "100"),
            largest=64 * KIB,
            ranks=(2,),
            quick=True,
            **only,
        ),
        Setting(library, "pages", environment=KEEP_PAGES, smallest=4 * MIB, quick=True),
        Setting(
            library,
            "raben+pages",
            arguments=RABENSEIFNER,
            environment=KEEP_PAGES,
            smallest=4 * MIB,
            **only,
        ),
        Setting(
            library, "ucx+pages", arguments=UCX, environment=KEEP_PAGES, smallest=4 * MIB, **only
        ),
        Setting(library, "ob1", "tcp", OMPI_TCP, quick=True),
        Setting(library, "ob1 raben", "tcp", OMPI_TCP + RABENSEIFNER, smallest=64 * KIB, **only),
        Setting(library, "ucx", "tcp", UCX, UCX_TCP, ranks=(2,)),
    ]


def _mpich():
    ucx = {"MPIR_CVAR_NOLOCAL": "1", **UCX_TCP}
    ofi = {
        "MPIR_CVAR_NOLOCAL": "1",
        "MPIR_CVAR_CH4_NETMOD": "ofi",
        "FI_PROVIDER": "tcp",
        "FI_TCP_IFACE": "lo",
    }
    pairs = {"kinds": ("allreduce",), "ranks": (2,)}
    rsag = {"MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": "reduce_scatter_allgather"}
    relg = {"MPIR_CVAR_ALLREDUCE_POSIX_INTRA_ALGORITHM": "release_gather"}
    return [
        Setting("mpich4", "default", quick=True, spins=True),
        Setting("mpich4", "rsag", environment=rsag, smallest=8 * KIB, **pairs),
        Setting("mpich4", "ucx", "tcp", environment=ucx, quick=True, spins=True),
        Setting("mpich5", "default", quick=True, spins=True),
        Setting("mpich5", "relg", environment=relg, **pairs),
        Setting("mpich5", "ofi", "tcp", environment=ofi, quick=True, spins=True),
    ]


def _intel_mpi():
    def on_host(name, ranks, *environments, **options):
        environment = {"I_MPI_FABRICS": "shm"}
        for each in environments:
            environment.update(each)
        return Setting("impi", name, environment=environment, ranks=ranks, **options)

    def allreduce(number):
        return {"I_MPI_ADJUST_ALLREDUCE": str(number)}

    waits = {"I_MPI_WAIT_MODE": "1"}  # without this, ranks spin and do not yield
    # Without I_MPI_COLL_INTRANODE, collectives still go through shared memory.
    tcp = {
        "I_MPI_FABRICS": "ofi",
        "FI_PROVIDER": "tcp",
        "FI_TCP_IFACE": "lo",
        "I_MPI_COLL_INTRANODE": "pt2pt",
    }
    pages = {"smallest": 4 * MIB}
    only = {"kinds": ("allreduce",)}
    long = {"smallest": 64 * KIB, "quick": True, **only}
    return [
        on_host("default", OWN, quick=True),
        on_host("pages", OWN, KEEP_PAGES, quick=True, **pages),
        on_host("wait", CROWDED, waits, quick=True),
        on_host("wait pages", CROWDED, waits, KEEP_PAGES, **pages),
        on_host("wait unpinned", CROWDED, waits, pin=False),
        *(
            on_host(
                *(f"{number}{word}", ranks, each, allreduce(number)),
                largest=256 * KIB,
                quick=number == 10,
                **only,
            )
            for number in (10, 12, 23)  # the fastest shared-memory algorithms here
            for word, ranks, each in (("", OWN, {}), (" wait", CROWDED, waits))
        ),
        on_host("13 pages", OWN, KEEP_PAGES, allreduce(13), **long),
        on_host("13 wait pages", CROWDED, waits, KEEP_PAGES, allreduce(13), **long),
        Setting("impi", "tcp", "tcp", environment=tcp, ranks=OWN, quick=True),
        Setting("impi", "tcp wait", "tcp", environment={**tcp, **waits}, ranks=CROWDED),
    ]


def _one_ccl():
    def on_host(name, algorithm, **options):
        environment = {"CCL_ATL_SHM": "1", "CCL_ALLREDUCE": algorithm}
        return Setting("ccl", name, environment=environment, spins=True, **only, **options)

    only = {"kinds": ("allreduce",)}
    over_tcp = {"CCL_ALLREDUCE": "rabenseifner"}
    return [
        Setting("ccl", "default", environment={"CCL_ATL_SHM": "1"}, quick=True, spins=True),
        on_host("raben", "rabenseifner"),
        on_host("ring", "ring", smallest=64 * KIB),
        on_host("nreduce", "nreduce", smallest=64 * KIB, quick=True),
        on_host("doubling", "recursive_doubling", largest=256 * KIB),
        Setting("ccl", "default", "tcp", quick=True, spins=True),
        Setting(
            *("ccl", "raben", "tcp"), environment=over_tcp, smallest=64 * KIB, spins=True, **only
        ),
    ]


def all_settings():
    gloo = [
        Setting("gloo", "pinned", "tcp"),
        Setting("gloo", "unpinned", "tcp", pin=False, quick=True),
    ]
    open_mpi = _open_mpi("ompi4") + _open_mpi("ompi5")
    return open_mpi + _mpich() + _intel_mpi() + _one_ccl() + gloo


def our_settings(ranks, transport, memories):
    environment = {"HCCL_TRANSPORT": "tcp"} if transport == "tcp" else {}
    return [
        Setting("hccl", memory, transport, environment=environment, program=("--memory", memory))
        for memory in memories
    ]


@dataclass
class Launch:
    """One command for all ranks or one for each rank, and the variables that are added to the
    environment."""

    commands: list
    environment: dict
    of_rank: list  # additional variables for each command


def launch(setting, ranks, program_arguments, page, rivals, build, processors):
    """Returns the commands of one run. rivals: the folder of install.py. build: the build folder of this project."""
    arguments = [*program_arguments, "--page", page, *setting.program]
    if setting.pin:
        arguments.append("--pin")
    if setting.library in ("ompi4", "ompi5"):
        return _launch_open_mpi(setting, ranks, arguments, rivals, ranks > processors)
    if setting.library in ("mpich4", "mpich5", "impi"):
        return _launch_mpich(setting, ranks, arguments, rivals)
    return _launch_each(setting, ranks, arguments, page, rivals, build)


def _environment(setting, **more):
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return {**root, **setting.environment, **more}


def _launch_open_mpi(setting, ranks, arguments, rivals, crowded):
    environment = _environment(setting)
    newest = setting.library == "ompi5"
    mpirun = f"{rivals}/ompi5/bin/mpirun" if newest else _debian_mpirun()
    # Ranks pin themselves, in the same way for all libraries.
    command = [mpirun, "--bind-to", "none", "-np", str(ranks)]
    if crowded:
        command += ["--map-by", ":OVERSUBSCRIBE"] if newest else ["--oversubscribe"]
        environment["OMPI_MCA_mpi_yield_when_idle"] = "1"
    for name in setting.environment:
        command += ["-x", name]
    program = f"{rivals}/bin/{PROGRAMS[setting.library]}"
    return Launch([[*command, *setting.arguments, program, *arguments]], environment, [{}])


def _launch_mpich(setting, ranks, arguments, rivals):
    """Launches MPICH, or Intel MPI, which is derived from MPICH."""
    library = setting.library
    home = f"{rivals}/{library}" + ("/usr" if library == "mpich4" else "")
    environment = _environment(setting)
    command = [f"{home}/bin/mpiexec.hydra"]
    if library == "impi":
        environment.update(
            I_MPI_ROOT=home,
            I_MPI_PIN="off",
            FI_PROVIDER_PATH=f"{home}/lib",
            LD_LIBRARY_PATH=f"{home}/lib",
        )
    else:
        command += ["-bind-to", "none"]
    if library == "mpich4":
        environment["LD_LIBRARY_PATH"] = f"{home}/lib/x86_64-linux-gnu"
    command += [*setting.arguments, "-n", str(ranks), f"{rivals}/bin/{PROGRAMS[library]}"]
    return Launch([command + arguments], environment, [{}])


def _launch_each(setting, ranks, arguments, page, rivals, build):
    """Makes commands without a launcher: one process for each rank."""
    environment = _environment(setting, BENCH_SIZE=str(ranks))
    of_rank = [{"BENCH_RANK": str(r)} for r in range(ranks)]
    library = setting.library
    program = [f"{rivals}/bin/{library}_bench"]  # the program for oneCCL, or one of torch/engines.py
    if library == "ccl":
        environment = {**_ccl_environment(f"{rivals}/ccl", ranks), **environment}
        for r in range(ranks):
            of_rank[r]["CCL_LOCAL_RANK"] = str(r)
    elif library == "gloo":
        environment.update(
            BENCH_METHOD=f"{build}/benchmarks/libbench_method.so",
            GLOO_SOCKET_IFNAME="lo",
            BENCH_STORE=page + ".store",
        )
        script = os.path.join(os.path.dirname(__file__), "gloo_bench.py")
        program = [f"{rivals}/gloo/bin/python", script]
    elif library == "hccl":
        program = [f"{build}/benchmarks/hccl_bench"]
    return Launch([program + arguments] * ranks, environment, of_rank)


def _ccl_environment(home, ranks):
    return {
        "CCL_ATL_TRANSPORT": "ofi",
        "FI_PROVIDER": "tcp",
        "FI_TCP_IFACE": "lo",
        "CCL_WORKER_OFFLOAD": "0",
        "CCL_PROCESS_LAUNCHER": "none",
        "CCL_YIELD": "sched_yield",
        "CCL_LOCAL_SIZE": str(ranks),
        "CCL_ROOT": home,
        "I_MPI_ROOT": home,
        "FI_PROVIDER_PATH": f"{home}/lib",
        "LD_LIBRARY_PATH": f"{home}/lib",
    }


def _debian_mpirun():
    return "/usr/bin/mpirun.openmpi" if os.path.exists("/usr/bin/mpirun.openmpi") else "mpirun"
