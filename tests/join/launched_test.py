#!/usr/bin/env python3
"""launched_test.py RANK_PROGRAM [MPIRUN [MPIEXEC_HYDRA]]: which world a process gets from its launcher.

Each rank prints its rank, its world's size and the nonces of the world's ranks. The nonce names the
job, so a world of two jobs shows. HCCL_TEST_STARTS: how many jobs each launcher starts."""

import contextlib
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM, MPIRUN, HYDRA = (sys.argv[1:] + ["", "", ""])[:3]
SECONDS = 90  # only ends a hang; no test depends on it
UNSHARE = subprocess.run(["unshare", "--pid", "--net", "--fork", "--mount-proc", "ip", "link", "set", "lo", "up"],
                         stderr=subprocess.DEVNULL, check=False).returncode == 0
LAUNCHERS = re.compile("RANK$|^(RANK|WORLD_SIZE|MASTER_|LOCAL_|PMI|OMPI_|SLURM_|MPI_LOCAL|HCCL_JOB)")
MPIRUNS_OWN = re.compile(r"\[[^]]+:\d+\] ")  # "[host:pid] text"
# A launcher of two workers, like torchrun: each worker is a process with variables of its own.
TORCHRUN = """
import os, subprocess, sys
variables = dict(os.environ, WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[1], NONCE=sys.argv[1])
workers = [subprocess.Popen(sys.argv[2:], env=dict(variables, RANK=str(i))) for i in range(2)]
sys.exit(max(each.wait() for each in workers))
"""


def variables(**more):
    own = {name: value for name, value in os.environ.items() if not LAUNCHERS.search(name)}
    return {**own, "HCCL_LOG": "off", "HCCL_CONNECT_TIMEOUT": "20", "HCCL_FLIGHT_RECORDER_DIR": "off", **more}


def port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def by_hand(rank, number, nonce, size=2):
    """Returns the variables of torchrun, set by hand."""
    return variables(RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(number), NONCE=str(nonce))


def run(*command, env=None):
    """Returns the lines that all processes of a command printed, without mpirun's own lines: a rank that searches its
    root may have connected to mpirun. If no line is left, returns the exit status."""
    done = subprocess.run(command, env=env or variables(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=SECONDS, check=False)
    lines = sorted(line for line in done.stdout.splitlines() if not MPIRUNS_OWN.match(line))
    return lines or [f"exit status {done.returncode}"]


def start(env, *arguments, output=None):
    """Starts a process, and waits until others can read its variables: Popen returns a little earlier, within exec."""
    process = subprocess.Popen([PROGRAM, *arguments], env=env, stdout=subprocess.PIPE, stderr=output, text=True)
    wait_for(lambda: process.poll() is not None or pathlib.Path(f"/proc/{process.pid}/environ").read_bytes())
    return process


def end(process):
    try:
        return process.communicate(timeout=SECONDS)[0].strip()
    finally:
        process.kill()


def wait_for(condition):
    """Waits until the condition holds. A file of /proc may vanish between its listing and its reading."""
    late = time.monotonic() + SECONDS
    while True:
        with contextlib.suppress(OSError):
            if condition():
                return
        assert time.monotonic() < late
        time.sleep(0.01)


def is_root(pid):
    """Returns whether the process, which is rank 0, has opened its job."""
    return b"hccl-control\n" in [path.read_bytes() for path in pathlib.Path(f"/proc/{pid}/task").glob("*/comm")]


def has_claim(pid):
    sockets = {os.readlink(path)[8:-1] for path in pathlib.Path(f"/proc/{pid}/fd").iterdir()}
    names = [line.split() for line in pathlib.Path("/proc/net/unix").read_text("utf-8").splitlines() if "@hccl-" in line]
    return any(name[6] in sockets for name in names)


def child_of(pid):
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()
    return children[0] if children else pid


def secret_file(test):
    folder = tempfile.TemporaryDirectory()
    test.addCleanup(folder.cleanup)
    path = os.path.join(folder.name, "secret")
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as file:
        file.write(os.urandom(32).hex())
    return path


def mpirun(ranks, *command):
    return run(MPIRUN, "--oversubscribe", "--allow-run-as-root", "-np", str(ranks), *command)


def world(nonce, size=2):
    return [f"rank {i} of {size}, nonces" + size * f" {nonce}" for i in range(size)]


class Innermost(unittest.TestCase):
    @unittest.skipUnless(HYDRA, "no hydra")
    def test_hydra(self):
        self.assertEqual(run(HYDRA, "-n", "2", PROGRAM), world(0))
        self.assertEqual(run(HYDRA, "-n", "1", PROGRAM), world(0, 1))
        # An outer mpiexec sets the same values.
        self.assertEqual(run(HYDRA, "-n", "2", HYDRA, "-n", "2", PROGRAM), sorted(2 * world(0)))

    @unittest.skipUnless(HYDRA, "no hydra")
    def test_hydra_between_hosts_is_refused(self):
        # The shell returns 0, because hydra may lose the output of ranks that fail.
        lines = run(HYDRA, "-n", "2", "sh", "-c", f"MPI_LOCALNRANKS=1 MPI_LOCALRANKID=0 '{PROGRAM}'; true")
        self.assertEqual(len(lines), 2)
        for line in lines:
            self.assertRegex(line, "refused: .*rank [01] of 2.*RANK=.PMI_RANK")

    @unittest.skipUnless(MPIRUN, "no mpirun")
    def test_launcher_inside_mpirun(self):
        inner = (sys.executable, "-c", TORCHRUN)
        first = port()
        self.assertEqual(mpirun(1, *inner, str(first), PROGRAM), world(first))
        # Each of two ranks has a launcher of its own.
        script = f"exec \"$0\" -c \"$1\" $(({first} + OMPI_COMM_WORLD_RANK)) \"$2\""
        self.assertEqual(mpirun(2, "sh", "-c", script, sys.executable, TORCHRUN, PROGRAM),
                         sorted(world(first) + world(first + 1)))

    @unittest.skipUnless(MPIRUN, "no mpirun")
    def test_contradiction_shows_both(self):
        script = f"RANK=0 WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 exec '{PROGRAM}'"
        lines = mpirun(1, "sh", "-c", script)
        self.assertRegex("\n".join(lines), "refused: .*PMIX_RANK says rank 0 of 1, RANK says rank 0 of 3")

    def test_program_that_a_rank_starts(self):
        number = port()
        ranks = [start(by_hand(i, number, 7), "child") for i in range(2)]
        for i, rank in enumerate(ranks):
            joined, child = end(rank).splitlines()
            self.assertEqual(joined, world(7)[i])
            self.assertRegex(child, f"refused: .*process {rank.pid} has joined as rank {i}")

    def test_joins_again(self):
        number = port()
        ranks = [start(by_hand(i, number, 7), "again") for i in range(2)]
        for i, rank in enumerate(ranks):
            self.assertEqual(end(rank).splitlines(), [world(7)[i]] * 2)

    def test_joins_at_a_later_try(self):
        for first, second in ((0, 1), (1, 0)):
            number = port()
            early = start({**by_hand(first, number, 7), "HCCL_CONNECT_TIMEOUT": "2"}, "retry")
            self.addCleanup(early.kill)
            tries = [early.stdout.readline() for _ in range(2)]
            self.assertEqual(end(start(by_hand(second, number, 7))), world(7)[second])
            tries += end(early).splitlines()
            self.assertEqual(tries[-1], world(7)[first])
            for each in tries[:-1]:
                self.assertRegex(each, "^refused: ")

    def test_a_daemon_of_a_rank_is_no_rank(self):
        number = port()
        ranks = [start(by_hand(i, number, 7), "daemon") for i in range(2)]
        self.assertEqual([end(rank) for rank in ranks], world(7))


def outcome(ranks):
    """Returns the lines of all ranks, with "refused" for a rank that was refused."""
    return ["refused" if line.startswith("refused: ") else line for line in map(end, ranks)]


class NeverMixed(unittest.TestCase):
    def test_two_jobs_at_once_of_one_name(self):
        for order in range(4):
            # If a rank comes after its job was refused, it waits for the root until this time-out.
            number, secret = port(), {"HCCL_CONNECT_TIMEOUT": "3"}
            if order % 2:  # with a secret, as between hosts
                secret["HCCL_JOB_SECRET_FILE"] = secret_file(self)
            jobs = {(job, rank): {**by_hand(rank, number, job), **secret} for job in (1, 2) for rank in range(2)}
            keys = sorted(jobs, key=lambda key: key[::-1] if order < 2 else key)
            lines = outcome([start(jobs[key]) for key in keys])
            for (job, rank), line in zip(keys, lines):
                self.assertIn(line, ("refused", world(job)[rank]), lines)

    def test_different_secrets_are_named_while_the_search_goes_on(self):
        number = port()

        def start_rank(rank, patience):
            own = {"HCCL_JOB_SECRET_FILE": secret_file(self), "HCCL_LOG": "warn", "HCCL_CONNECT_TIMEOUT": patience}
            started = start({**by_hand(rank, number, 1), **own}, output=subprocess.STDOUT)
            self.addCleanup(started.kill)
            return started

        ranks = [start_rank(0, "60")]
        wait_for(lambda: is_root(ranks[0].pid))
        ranks.append(start_rank(1, "5"))
        warning, refused = end(ranks[1]).splitlines()
        self.assertRegex(warning, "W rank 1: .*another secret .*HCCL_JOB_SECRET_FILE")
        self.assertRegex(refused, "refused: .*does not answer.*another secret .*HCCL_JOB_SECRET_FILE")
        ranks[0].kill()
        end(ranks[0])

    def test_a_job_id_keeps_them_apart(self):
        number = port()
        jobs = [start({**by_hand(rank, number, job), "HCCL_JOB_ID": str(job)}) for rank in range(2) for job in (1, 2)]
        self.assertEqual(sorted(map(end, jobs)), sorted(world(1) + world(2)))

    def test_second_root_is_refused_and_both_are_named(self):
        for secret in ({}, {"HCCL_JOB_SECRET_FILE": secret_file(self)}):
            number = port()
            roots = [start({**by_hand(0, number, job), **secret}) for job in (1, 2)]
            for text in map(end, roots):
                self.assertIn("refused: ", text)
                for words in ("set HCCL_JOB_ID", *(f"pid {root.pid} " for root in roots)):
                    self.assertIn(words, text)

    def test_process_that_will_claim_a_rank(self):
        for script, joins in (([], False), (["another.py"], True)):
            number = port()
            other = start(by_hand(1, number, 1), "--pause", *script)
            ranks = [start(by_hand(rank, number, 2)) for rank in range(2)]
            lines = [end(rank) for rank in ranks]
            other.kill()
            end(other)
            if joins:
                self.assertEqual(lines, world(2))
            else:
                self.assertRegex("\n".join(lines), f"claim rank 1: .*pid {other.pid} .*set HCCL_JOB_ID")

    def test_rank_left_over_from_an_earlier_attempt(self):
        number = port()
        old = start(by_hand(1, number, 1))
        time.sleep(1.5)  # the earlier attempt is at least a second older
        new = [start(by_hand(1, number, 2))]
        new[0].send_signal(signal.SIGSTOP)  # so that the old rank comes first
        new.insert(0, start(by_hand(0, number, 2)))
        self.assertRegex(end(old), "^refused: ")
        new[1].send_signal(signal.SIGCONT)
        self.assertEqual([end(rank) for rank in new], world(2))

    def test_attempts_of_one_agent_of_torchelastic(self):
        number, secret = port(), secret_file(self)

        def of(rank, agent, attempt, nonce=2):
            own = {"GROUP_RANK": str(agent), "TORCHELASTIC_RESTART_COUNT": str(attempt), "HCCL_JOB_SECRET_FILE": secret}
            return {**by_hand(rank, number, nonce, 3), "LOCAL_WORLD_SIZE": str(1 + agent), **own}

        new = [start(of(0, 0, 0)), start(of(1, 1, 1))]  # agent 1 alone has restarted its ranks
        old = start(of(2, 1, 0, nonce=1))
        text = end(old)
        self.assertRegex(text, "refused: .*left over from an earlier attempt.*TORCHELASTIC_RESTART_COUNT")
        for pid in (old.pid, new[1].pid):
            self.assertIn(f"pid {pid}, restart", text)
        new.append(start(of(2, 1, 1)))
        self.assertEqual([end(rank) for rank in new], world(2, 3))

    def test_child_of_a_killed_root_does_not_keep_the_name(self):
        for secret in ({}, {"HCCL_JOB_SECRET_FILE": secret_file(self)}):
            number = port()
            variables_of = lambda rank, job: {**by_hand(rank, number, job), **secret}
            root = subprocess.Popen([PROGRAM, "fork"], env=variables_of(0, 1), stdin=subprocess.PIPE,
                                    stdout=subprocess.PIPE, text=True)
            wait_for(lambda: is_root(root.pid))
            root.stdin.write("\n")
            root.stdin.flush()
            child = int(root.stdout.readline())
            try:
                root.kill()
                root.communicate()
                ranks = [start(variables_of(rank, 2)) for rank in range(2)]
                self.assertEqual([end(rank) for rank in ranks], world(2))
            finally:
                os.kill(child, signal.SIGKILL)


@unittest.skipUnless(os.geteuid() == 0, "no right to be another user")
class TakenName(unittest.TestCase):
    def setUp(self):
        self.user = random.randrange(1 << 20, 1 << 30)
        self.addCleanup(lambda: [subprocess.run(["rm", "-rf", path], check=True) for path in self.folders()])
        self.taken = pathlib.Path(f"/tmp/hccl-{self.user}")
        self.taken.mkdir(0o700)
        os.chown(self.taken, self.user + 1, self.user + 1)

    def folders(self):
        return sorted(pathlib.Path("/tmp").glob(f"hccl-{self.user}*"))

    def start(self, rank, number, **more):
        as_user = ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups", PROGRAM]
        return subprocess.Popen(as_user, env={**by_hand(rank, number, 7), **more}, stdout=subprocess.PIPE, text=True)

    def test_another_user_has_the_name_of_the_folder(self):
        for _ in range(2):
            number = port()
            # Different variables, as if cron starts one rank and ssh the other.
            ranks = [self.start(0, number), self.start(1, number, XDG_RUNTIME_DIR="/run/user/1", TMPDIR="/run")]
            self.assertEqual([end(rank) for rank in ranks], world(7))
        taken, own = self.folders()  # the second job uses the first one's folder
        self.assertEqual([taken, own.stat().st_uid, own.stat().st_mode & 0o777], [self.taken, self.user, 0o700])
        self.assertEqual(list(own.iterdir()), [])


@unittest.skipUnless(UNSHARE, "no right to make namespaces")
class Containers(unittest.TestCase):
    def start_in(self, kinds, words, env):
        command = ["unshare", "--kill-child", "--fork", *kinds, "sh", "-c", words, PROGRAM]
        return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)

    def test_numbers_of_processes_elsewhere_are_no_ancestors(self):
        number = port()
        of = lambda rank, job: {**by_hand(rank, number, job), "HCCL_JOB_ID": str(job)}
        other = self.start_in(["--pid", "--mount-proc"], 'exec "$0"', of(1, 1))  # pid 1; waits for its root
        wait_for(lambda: has_claim(child_of(other.pid)))
        ranks = [start(of(0, 2)), self.start_in(["--pid", "--mount-proc"], '"$0"; true', of(1, 2))]
        lines = [end(rank) for rank in ranks]
        other.kill()
        self.assertEqual([lines, end(other)], [world(2), ""])

    def test_roots_of_two_networks_have_one_name(self):
        number = port()
        other = self.start_in(["--net"], 'ip link set lo up; exec "$0"', by_hand(0, number, 1))
        wait_for(lambda: is_root(child_of(other.pid)))
        lines = [end(rank) for rank in [start(by_hand(rank, number, 2)) for rank in range(2)]]
        other.kill()
        self.assertEqual([lines, end(other)], [world(2), ""])


SHORT = {"HCCL_CONNECT_TIMEOUT": "3"}  # limits the wait of a rank whose root was refused or killed


def ranks_below(pid):
    """Returns the ranks among a process and its descendants. A rank's own child is no rank: it belongs to
    LeakSanitizer, which would hang if the child died."""
    try:
        if os.path.samefile(f"/proc/{pid}/exe", PROGRAM):
            return [int(pid)]
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            children = file.read().split()
    except OSError:
        return []
    return [each for child in children for each in ranks_below(child)]


def end_of_ranks(process):
    """Like end(), for a launcher that lost a rank: Open MPI's may hang after all ranks have ended."""
    for _ in range(SECONDS // 5):
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=5)[0]
        if not ranks_below(process.pid):
            process.kill()
    process.kill()
    raise AssertionError("a rank hangs")


class Starts(unittest.TestCase):
    """Two jobs of 4 ranks run at once. If they have the same name, they may be refused, but must not get each other's
    ranks. The same holds if a rank of a job is killed."""

    def by_variables(self, job):
        return [start({**by_hand(rank, self.number, job, 4), **SHORT}) for rank in range(4)]

    def by_table(self, job):
        devices = [{"device_id": str(i), "device_ip": f"127.0.0.{i + 1}", "rank_id": str(i)} for i in range(4)]
        table = {"version": "1.0", "status": "completed", "server_count": "1",
                 "server_list": [{"server_id": str(self.number), "device": devices}]}
        path = os.path.join(self.folder.name, "table.json")
        with open(path + str(job), "w", encoding="ascii") as file:
            json.dump(table, file)
        os.replace(path + str(job), path)
        return [start(variables(RANK_TABLE_FILE=path, RANK_ID=str(i), NONCE=str(job), **SHORT)) for i in range(4)]

    def by_command(self, job, *command):
        environment = variables(NONCE=str(job))
        return [subprocess.Popen([*command, PROGRAM], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                 text=True)]

    def pairs(self, jobs_of, one_name):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        seed = random.randrange(1 << 30)
        chance = random.Random(seed)
        for pair in range(int(os.environ.get("HCCL_TEST_STARTS", "4")) // 2):
            self.number = port()
            jobs = {job: jobs_of(self, job) for job in (1, 2)}
            killed = chance.choice((None, 1, 2))
            if killed:
                time.sleep(chance.uniform(0, 0.5))
                found = [pid for each in jobs[killed] for pid in ranks_below(each.pid)]
                with contextlib.suppress(ProcessLookupError, IndexError):  # the processes have ended, or have not begun
                    os.kill(chance.choice(found), signal.SIGKILL)
            for job, processes in jobs.items():
                end_of = end_of_ranks if job == killed else end
                lines = [line for each in processes for line in end_of(each).splitlines()]
                where = f"seed {seed}, pair {pair}, job {job}, killed {killed}: {lines}"
                joined = [line for line in lines if line.startswith("rank ")]
                self.assertLessEqual(set(joined), set(world(job, 4)), where)
                if not killed and not one_name:
                    self.assertEqual(sorted(joined), world(job, 4), where)

    def test_variables(self):
        self.pairs(Starts.by_variables, one_name=True)

    def test_rank_table(self):
        self.pairs(Starts.by_table, one_name=True)

    @unittest.skipUnless(MPIRUN, "no mpirun")
    def test_mpirun(self):
        command = (MPIRUN, "--oversubscribe", "--allow-run-as-root", "-np", "4")
        self.pairs(lambda self, job: self.by_command(job, *command), one_name=False)

    @unittest.skipUnless(HYDRA, "no hydra")
    def test_hydra(self):
        self.pairs(lambda self, job: self.by_command(job, HYDRA, "-n", "4"), one_name=False)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
