"""The rivals, the settings in which each is timed (of which the best counts), and how each is
launched."""

import os
from dataclasses import dataclass, field as default

from cases import KIB, MIB


@dataclass(frozen=True)
class Setting:
    library: str
    name: str
    transport: str = "shm"
    arguments: tuple = ()  # of the launcher
    environment: dict = default(default_factory=dict, hash=False)
    program: tuple = ()  # of the timed program
    smallest: int = 0  # bytes from which, and up to which, it is timed
    largest: int = 1 << 40
    kinds: tuple = ("allreduce", "others")
    ranks: tuple = (2, 4, 8)
    pin: bool = True
    quick: bool = False  # also timed by --quick
    spins: bool = False  # waits without giving way to ranks on its processor

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
BF16 = ("mpich5", "impi", "ccl", "gloo")  # those that reduce this type
PROGRAMS = {
    "ccl": "ccl_bench",
    **{mpi: f"mpi_bench_{mpi}" for mpi in ("ompi4", "ompi5", "mpich4", "mpich5", "impi")},
}

# Open MPI's temporaries from the heap rather than fresh pages each time: half the time at 64 MiB.
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
        Setting(library, "unpinned", ranks=(4, 8), pin=False),
        Setting(library, "ucx", arguments=UCX, quick=True),
        Setting(library, "ucx unpinned", arguments=UCX, ranks=(4, 8), pin=False),
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


def all_settings():
    settings = _open_mpi("ompi4") + _open_mpi("ompi5")
    ucx = {"MPIR_CVAR_NOLOCAL": "1", **UCX_TCP}
    ofi = {
        "MPIR_CVAR_NOLOCAL": "1",
        "MPIR_CVAR_CH4_NETMOD": "ofi",
        "FI_PROVIDER": "tcp",
        "FI_TCP_IFACE": "lo",
    }
    settings += [
        Setting("mpich4", "default", quick=True, spins=True),
        Setting(
            "mpich4",
            "rsag",
            environment={"MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": "reduce_scatter_allgather"},
            smallest=8 * KIB,
            kinds=("allreduce",),
            ranks=(2,),
        ),
        Setting("mpich4", "ucx", "tcp", environment=ucx, quick=True, spins=True),
        Setting("mpich5", "default", quick=True, spins=True),
        Setting(
            "mpich5",
            "relg",
            environment={"MPIR_CVAR_ALLREDUCE_POSIX_INTRA_ALGORITHM": "release_gather"},
            kinds=("allreduce",),
            ranks=(2,),
        ),
        Setting("mpich5", "ofi", "tcp", environment=ofi, quick=True, spins=True),
    ]
    waits = {"I_MPI_WAIT_MODE": "1"}  # otherwise its ranks spin without giving way
    shm = {"I_MPI_FABRICS": "shm"}
    # The last: otherwise its collectives go through shared memory all the same.
    tcp = {
        "I_MPI_FABRICS": "ofi",
        "FI_PROVIDER": "tcp",
        "FI_TCP_IFACE": "lo",
        "I_MPI_COLL_INTRANODE": "pt2pt",
    }
    settings += [
        Setting("impi", "default", environment=shm, ranks=(2,), quick=True),
        Setting(
            "impi",
            "pages",
            environment={**shm, **KEEP_PAGES},
            smallest=4 * MIB,
            ranks=(2,),
            quick=True,
        ),
        Setting("impi", "wait", environment={**shm, **waits}, ranks=(4, 8), quick=True),
        Setting(
            "impi",
            "wait pages",
            environment={**shm, **waits, **KEEP_PAGES},
            smallest=4 * MIB,
            ranks=(4, 8),
        ),
        Setting("impi", "wait unpinned", environment={**shm, **waits}, ranks=(4, 8), pin=False),
        *(
            Setting(
                "impi",
                f"{algorithm} wait",
                environment={**shm, **waits, "I_MPI_ADJUST_ALLREDUCE": str(algorithm)},
                largest=256 * KIB,
                kinds=("allreduce",),
                ranks=(4, 8),
                quick=algorithm == 10,
            )
            for algorithm in (10, 12, 23)  # among shared-memory algorithms the fastest here
        ),
        *(
            Setting(
                "impi",
                f"13 {'wait ' if wait else ''}pages",
                environment={**shm, **wait, **KEEP_PAGES, "I_MPI_ADJUST_ALLREDUCE": "13"},
                smallest=64 * KIB,
                kinds=("allreduce",),
                ranks=ranks,
                quick=True,
            )
            for wait, ranks in (({}, (2,)), (waits, (4, 8)))
        ),
        Setting("impi", "tcp", "tcp", environment=tcp, ranks=(2,), quick=True),
        Setting("impi", "tcp wait", "tcp", environment={**tcp, **waits}, ranks=(4, 8)),
    ]
    ccl_shm = {"CCL_ATL_SHM": "1"}
    only = {"kinds": ("allreduce",)}
    settings += [
        Setting("ccl", "default", environment=ccl_shm, quick=True, spins=True),
        Setting(
            "ccl",
            "raben",
            environment={**ccl_shm, "CCL_ALLREDUCE": "rabenseifner"},
            spins=True,
            **only,
        ),
        Setting(
            "ccl",
            "ring",
            environment={**ccl_shm, "CCL_ALLREDUCE": "ring"},
            smallest=64 * KIB,
            spins=True,
            **only,
        ),
        Setting(
            "ccl",
            "nreduce",
            environment={**ccl_shm, "CCL_ALLREDUCE": "nreduce"},
            smallest=64 * KIB,
            quick=True,
            spins=True,
            **only,
        ),
        Setting(
            "ccl",
            "doubling",
            environment={**ccl_shm, "CCL_ALLREDUCE": "recursive_doubling"},
            largest=256 * KIB,
            spins=True,
            **only,
        ),
        Setting("ccl", "default", "tcp", quick=True, spins=True),
        Setting(
            "ccl",
            "raben",
            "tcp",
            environment={"CCL_ALLREDUCE": "rabenseifner"},
            smallest=64 * KIB,
            spins=True,
            **only,
        ),
        Setting("gloo", "pinned", "tcp"),
        Setting("gloo", "unpinned", "tcp", pin=False, quick=True),
    ]
    return settings


def our_settings(ranks, transport, memories):
    environment = {"HCCL_TRANSPORT": "tcp"} if transport == "tcp" else {}
    return [
        Setting("hccl", memory, transport, environment=environment, program=("--memory", memory))
        for memory in memories
    ]


@dataclass
class Launch:
    """One command, or one a rank, with what must be in the environment beside what is."""

    commands: list
    environment: dict
    of_rank: list  # what each command has on top


def launch(setting, ranks, program_arguments, page, rivals, build, processors):
    """The processes of one run. rivals: the folder of install.py; build: of this project."""
    crowded = ranks > processors
    arguments = [*program_arguments, "--page", page, *setting.program]
    if setting.pin:
        arguments.append("--pin")
    environment = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        **setting.environment,
    }
    library = setting.library
    if library in ("ompi4", "ompi5"):
        # Ranks pin themselves, all libraries alike.
        mpirun = f"{rivals}/ompi5/bin/mpirun" if library == "ompi5" else _debian_mpirun()
        command = [mpirun, "--bind-to", "none", "-np", str(ranks)]
        if crowded:
            command += ["--oversubscribe"] if library != "ompi5" else ["--map-by", ":OVERSUBSCRIBE"]
            environment["OMPI_MCA_mpi_yield_when_idle"] = "1"
        for name in setting.environment:
            command += ["-x", name]
        program = f"{rivals}/bin/{PROGRAMS[library]}"
        return Launch([[*command, *setting.arguments, program, *arguments]], environment, [{}])
    if library in ("mpich4", "mpich5", "impi"):
        home = {
            "mpich4": f"{rivals}/mpich4/usr",
            "mpich5": f"{rivals}/mpich5",
            "impi": f"{rivals}/impi",
        }[library]
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

    # No launcher: one process a rank.
    environment["BENCH_SIZE"] = str(ranks)
    of_rank = [{"BENCH_RANK": str(r)} for r in range(ranks)]
    if library == "ccl":
        home = f"{rivals}/ccl"
        environment = {
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
            **environment,
        }
        for r in range(ranks):
            of_rank[r]["CCL_LOCAL_RANK"] = str(r)
        program = [f"{rivals}/bin/ccl_bench"]
    elif library == "gloo":
        environment.update(
            BENCH_METHOD=f"{build}/benchmarks/libbench_method.so",
            GLOO_SOCKET_IFNAME="lo",
            BENCH_STORE=page + ".store",
        )
        program = [
            f"{rivals}/gloo/bin/python",
            os.path.join(os.path.dirname(__file__), "gloo_bench.py"),
        ]
    elif library == "hccl":
        program = [f"{build}/benchmarks/hccl_bench"]
    else:  # torch/engines.py's
        program = [f"{rivals}/bin/{library}_bench"]
    return Launch([program + arguments] * ranks, environment, of_rank)


def _debian_mpirun():
    return "/usr/bin/mpirun.openmpi" if os.path.exists("/usr/bin/mpirun.openmpi") else "mpirun"
