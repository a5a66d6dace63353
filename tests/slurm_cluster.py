"""A throw-away SLURM cluster on loopback: munged, slurmctld and two slurmd, without systemd.

    python tests/slurm_cluster.py install        Debian's slurm-wlm and munge, if they are not there (root)

Written for the tests: two nodes of four CPUs and two pretended GPUs each, quick requeues, no accounting.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

from waiting import wait_until

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol")
NODES = ("isonode1", "isonode2")
HOSTS = Path("/etc/hosts")

CONFIGURATION = """
ClusterName=isobench
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# A requeued job may not start before its old credential has expired; the default is 120 s.
AuthInfo=socket={folder}/munge/socket,cred_expire=5
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
ReturnToService=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=2,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
KillWait=60
SlurmdTimeout=10
OverTimeLimit=0
JobRequeue=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmdParameters=config_overrides
GresTypes=gpu
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
NodeName={nodes[0]} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4 RealMemory=8000 Gres=gpu:2
NodeName={nodes[1]} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=4 RealMemory=8000 Gres=gpu:2
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
PartitionName=cheap Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=60
"""


def why_not() -> str | None:
    """Why there can be no cluster here; None if there can."""
    if os.name != "posix" or os.geteuid() != 0:
        return "a throw-away SLURM needs root"
    missing = [name for name in PROGRAMS if find(name) is None]
    return f"not installed: {', '.join(missing)} (python tests/slurm_cluster.py install)" if missing else None


def find(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


def install() -> None:
    if all(find(name) for name in PROGRAMS):
        return
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in ("apt-get update -qq", "apt-get install -y -qq --no-install-recommends slurm-wlm munge"):
        subprocess.run(command.split(), env=environment, check=True, stdout=subprocess.DEVNULL, timeout=600)


def up(folder: Path) -> None:
    """Start the cluster."""
    for name in ("munge", "state", "spool/" + NODES[0], "spool/" + NODES[1]):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for parent in (folder, *folder.parents):  # munge's own user must get through, and refuses what others may write
        if parent.stat().st_uid == os.geteuid() and parent != Path("/") and parent.name != "tmp":
            parent.chmod(0o755)
    host = socket.gethostname().split(".")[0]
    known = HOSTS.read_text()
    with HOSTS.open("a") as hosts:
        hosts.writelines(f"127.0.0.1 {name}\n" for name in (host, *NODES) if name not in known.split())
    start_munge(folder / "munge")
    configuration = folder / "slurm.conf"
    configuration.write_text(CONFIGURATION.format(host=host, folder=folder, ports=free_ports(3), nodes=NODES))
    for number in range(2):
        device = folder / f"gpu{number}"
        if not device.exists():
            os.mknod(device, 0o20666, os.makedev(1, 3))  # /dev/null by another name: nothing opens it
    gpus = "\n".join(f"NodeName={node} Name=gpu File={folder}/gpu[0-1]" for node in NODES)
    (folder / "gres.conf").write_text(f"AutoDetect=off\n{gpus}\n")
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")  # loads anywhere, mounts nothing
    os.environ["SLURM_CONF"] = str(configuration)
    subprocess.run([str(find("slurmctld"))], check=True)
    for node in NODES:
        start_node(node)
    wait_until_idle(folder)


def start_munge(folder: Path) -> None:
    key = folder / "key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    for path in (folder, key):
        shutil.chown(path, "munge", "munge")
    options = {"key-file": key, "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    flags = [f"--{name}={folder / value}" for name, value in options.items()]
    subprocess.run(["runuser", "-u", "munge", "--", str(find("munged")), *flags], check=True)


def start_node(node: str) -> None:
    subprocess.run([str(find("slurmd")), "-N", node], check=True)


def stop_node(folder: Path, node: str) -> None:
    """Take a node down as a power cut would: its daemon and everything it started die at once."""
    slurmd = int((folder / f"slurmd-{node}.pid").read_text())
    daemons = [slurmd, *stepds(node)]
    started = [child for daemon in daemons for child in descendants(daemon)]
    # The daemons first: one that sees its job die reports a job that failed, which SLURM doesn't requeue.
    for process in (*daemons, *started):
        kill(process)


def stepds(node: str) -> list[int]:
    """Processes that watch over a node's jobs; their jobs' environment names the node."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            name = (process / "comm").read_text().strip()
            children = descendants(int(process.name)) if name.startswith("slurmstepd") else []
            if any(f"SLURMD_NODENAME={node}\0" in Path(f"/proc/{c}/environ").read_text() for c in children):
                found.append(int(process.name))
        except (OSError, UnicodeDecodeError):
            continue
    return found


def descendants(pid: int) -> list[int]:
    try:
        children = [int(c) for t in Path(f"/proc/{pid}/task").iterdir() for c in (t / "children").read_text().split()]
    except OSError:
        return []
    return [grandchild for child in children for grandchild in (*descendants(child), child)]


def kill(pid: int, signum: int = signal.SIGKILL) -> None:
    try:
        os.kill(pid, signum)
    except ProcessLookupError:
        return


def down(folder: Path) -> None:
    subprocess.run(["scancel", "--me"], check=False)
    with contextlib.suppress(AssertionError):  # what is left ends with its node
        wait_until(lambda: not squeue(), "the queue is empty", squeue)
    for file in (*folder.glob("slurm*.pid"), folder / "munge" / "pid"):
        if file.exists():
            kill(int(file.read_text()), signal.SIGTERM)


def squeue(*arguments: str) -> str:
    command = ["squeue", "--noheader", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def wait_until_idle(folder: Path) -> None:
    def are_idle() -> bool:
        command = ["sinfo", "--noheader", "-N", "-p", "main", "-o", "%t"]
        states = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
        if any(state.startswith(("down", "drain")) for state in states):
            for node in NODES:
                subprocess.run(["scontrol", "update", f"nodename={node}", "state=resume"], check=False)
        return states == ["idle"] * len(NODES)

    def read_logs() -> str:
        return "\n".join(line for log in folder.glob("*.log") for line in log.read_text().splitlines()[-5:])

    wait_until(are_idle, "SLURM is up", read_logs)


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


if __name__ == "__main__":
    install()
