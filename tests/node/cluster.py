"""A cluster of one node: control plane, container runtime, kubelet, proxy and DNS.

Everything runs in network, process and mount namespaces of its own, so that it meets nothing of the
machine's. What a killed test run leaves behind: no process and no mount (the kernel ends them with
the first process of the node), a folder of keys and logs, and empty cgroups; the next node removes
both. Images stay in the cache, in the store of the container runtime, which one node at a time
uses.
"""

import fcntl
import json
import shutil
import signal
import ssl
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

from tests.kubernetes.control_plane.binaries import find_or_build, find_or_build_set
from tests.kubernetes.control_plane.certificates import Authority, Pair
from tests.kubernetes.control_plane.cluster import Cluster, kubeconfig
from tests.kubernetes.control_plane.parts import Parts, answers
from tests.kubernetes.control_plane.recipe import NODE
from tests.node import images, keeper
from tests.node.needs import PLUGINS
from tests.node.network import ADDRESS, DNS, FIRST_SERVICE, PODS, SERVICES, own_network

NAME = "node"
_PREFIX = "privatekube-node-"
_CGROUPS = Path("/sys/fs/cgroup")
_READY_SECONDS = 120
_API_PORT = 6443
_TOP = Path(__file__).parents[2]


class NodeFailed(RuntimeError):
    """A part of the node did not start, or died; carries the end of its log."""


class Node(Cluster):
    """The cluster, from `with` to its end; the thread that enters it is in its network."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """Nothing runs yet; programs that are not in the cache are built."""
        self._control = find_or_build(say)
        self._programs = find_or_build_set(NODE, say)
        self._small = [
            images.build_program(name, self._programs / name) for name in ("pause", "coredns")
        ]
        images.folder().mkdir(parents=True, exist_ok=True)
        # One node at a time: they share the store of images.
        self._held = (images.folder() / "node.lock").open("w")
        fcntl.flock(self._held, fcntl.LOCK_EX)
        _remove_what_killed_runs_left()
        self._home = Path(tempfile.mkdtemp(prefix=_PREFIX))
        super().__init__(self._home / "admin.kubeconfig", self._control.kubectl, self._home)
        self._exit = ExitStack()
        self._parts = Parts(self._home, NodeFailed, _READY_SECONDS)
        self._inside: list[str] = []

    @property
    def logs(self) -> Path:
        return self._parts.logs

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def start(self) -> Self:
        """Start all parts; returns when pods can run and names are resolved."""
        self.logs.mkdir()
        # Before any part starts: all are in the network that this thread is in then.
        self._exit.enter_context(own_network())
        # 1. What the parts know of each other.
        self._make_keys()
        # 2. The control plane.
        self._start_control_plane()
        # 3. The namespaces that pods and their keepers live in.
        self._start_keeper()
        # 4. The container runtime, with the images that every pod needs.
        self._start_containerd()
        for archive in self._small:
            self.load(archive)
        # 5. The kubelet, and services.
        self._start_kubelet()
        self._parts.wait_until(self._is_ready, "kubelet", "containerd")
        self.apply(_cluster_dns())
        self.wait_for("deployment/coredns", namespace="kube-system")
        return self

    def stop(self) -> None:
        super().stop()
        self._parts.close()
        self._exit.close()
        _remove_cgroups(self._home.name)
        shutil.rmtree(self._home, ignore_errors=True)
        self._held.close()

    def load(self, archive: Path) -> None:
        """Bring an image into the node's store, unless it is there from before."""
        marks = images.folder() / "loaded"
        marks.mkdir(exist_ok=True)
        mark = marks / archive.name.rpartition("-")[0]
        if mark.exists() and mark.read_text() == archive.name:
            return
        self._ctr("images", "import", "--snapshotter=overlayfs", str(archive))
        mark.write_text(archive.name)

    def wait_for(self, what: str, *, namespace: str, seconds: int = 120) -> None:
        """Until a Deployment is rolled out."""
        self._checked("-n", namespace, "rollout", "status", what, f"--timeout={seconds}s")

    def start_beside(self, name: str, command: list[str], is_up: Callable[[], bool]) -> None:
        """Start a program in the node's network, and wait until it serves."""
        self._spawn(name, *command)
        self._parts.wait_until(is_up, name)

    def kill(self, name: str, how: signal.Signals) -> None:
        """Send a signal to a part."""
        self._parts[name].send_signal(how)

    # Parts

    def _make_keys(self) -> None:
        keys = self._home / "keys"
        keys.mkdir(mode=0o700)
        self._authority = Authority(keys)
        self._servers = self._authority.server("servers", addresses=(ADDRESS, FIRST_SERVICE))
        self._signing = self._authority.signing_key("service-accounts")
        self._clients_of_node = {
            name: self._kubeconfig(name, user, group)
            for name, user, group in (
                ("admin", "admin", "system:masters"),
                ("manager", "system:kube-controller-manager", None),
                ("scheduler", "system:kube-scheduler", None),
                ("proxy", "system:kube-proxy", None),
                ("node", f"system:node:{NAME}", "system:nodes"),
            )
        }
        self._to_kubelet = self._authority.client(
            "api-server", user="api-server", group="system:masters"
        )
        self._tls = ssl.create_default_context(cafile=str(self._authority.own.certificate))
        admin = self._authority.client("ready", user="ready", group="system:masters")
        self._tls.load_cert_chain(admin.certificate, admin.key)

    def _kubeconfig(self, name: str, user: str, group: str | None) -> Path:
        pair = self._authority.client(name, user=user, group=group)
        path = self._home / f"{name}.kubeconfig"
        cluster = {
            "server": f"https://{ADDRESS}:{_API_PORT}",
            "certificate-authority": str(self._authority.own.certificate),
        }
        shown = {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}
        path.write_text(kubeconfig(cluster, shown, "default"))
        return path

    def _start_control_plane(self) -> None:
        own = str(self._authority.own.certificate)
        served: Pair = self._servers
        client, peer = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
        data = tempfile.mkdtemp(
            prefix=_PREFIX, dir="/dev/shm" if Path("/dev/shm").is_dir() else None
        )
        self._exit.callback(shutil.rmtree, data, ignore_errors=True)
        self._spawn(
            "etcd",
            str(self._control.etcd),
            "--name=only",
            f"--data-dir={data}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=only={peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        )
        self._spawn(
            "kube-apiserver",
            str(self._control.kube_apiserver),
            f"--etcd-servers={client}",
            "--bind-address=0.0.0.0",
            f"--advertise-address={ADDRESS}",
            f"--secure-port={_API_PORT}",
            f"--service-cluster-ip-range={SERVICES}",
            f"--tls-cert-file={served.certificate}",
            f"--tls-private-key-file={served.key}",
            f"--client-ca-file={own}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self._signing.certificate}",
            f"--service-account-signing-key-file={self._signing.key}",
            "--kubelet-preferred-address-types=InternalIP",
            f"--kubelet-certificate-authority={own}",
            f"--kubelet-client-certificate={self._to_kubelet.certificate}",
            f"--kubelet-client-key={self._to_kubelet.key}",
            f"--cert-dir={self._home / 'keys'}",
        )
        self._parts.wait_until(lambda: self._answers("/readyz"), "etcd", "kube-apiserver")
        manager = self._clients_of_node["manager"]
        self._spawn(
            "kube-controller-manager",
            str(self._control.kube_controller_manager),
            f"--kubeconfig={manager}",
            f"--authentication-kubeconfig={manager}",
            f"--authorization-kubeconfig={manager}",
            "--bind-address=127.0.0.1",
            f"--tls-cert-file={served.certificate}",
            f"--tls-private-key-file={served.key}",
            "--leader-elect=false",
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={self._signing.key}",
            f"--root-ca-file={own}",
            "--kube-api-qps=300",
            "--kube-api-burst=500",
            f"--flex-volume-plugin-dir={self._home / 'volume-plugins'}",
        )
        scheduler = self._clients_of_node["scheduler"]
        self._spawn(
            "kube-scheduler",
            str(self._programs / "kube-scheduler"),
            f"--kubeconfig={scheduler}",
            f"--authentication-kubeconfig={scheduler}",
            f"--authorization-kubeconfig={scheduler}",
            "--bind-address=127.0.0.1",
            f"--tls-cert-file={served.certificate}",
            f"--tls-private-key-file={served.key}",
            "--leader-elect=false",
        )

    def _start_keeper(self) -> None:
        self._spawn(
            "keeper",
            *("/usr/bin/unshare", "--mount", "--propagation=private", "--pid", "--fork"),
            *("--kill-child", "--mount-proc", "/usr/bin/python3", "-I", "-S"),
            *(keeper.__file__, str(self._home)),
        )
        self._parts.wait_until((self._home / "kept").exists, "keeper")
        unshare = self._parts["keeper"].pid
        first = Path(f"/proc/{unshare}/task/{unshare}/children").read_text().split()[0]
        self._inside = ["/usr/bin/nsenter", f"--target={first}", "--mount", "--pid", "--wd=/"]

    def _start_containerd(self) -> None:
        root, state = images.folder() / "containerd", self._home / "containerd"
        (self._home / "cni").mkdir()
        (self._home / "cni" / "10-bridge.conflist").write_text(json.dumps(_pod_network()))
        self._socket = state / "containerd.sock"
        settings = self._home / "containerd.toml"
        settings.write_text(_containerd(root, state, self._socket, self._home / "cni"))
        if not root.is_dir():  # Then nothing is loaded, either.
            shutil.rmtree(images.folder() / "loaded", ignore_errors=True)
        command = (*self._inside, str(self._programs / "containerd"), "--config", str(settings))
        self._spawn("containerd", *command)
        self._parts.wait_until(self._runs_containers, "containerd")
        left = self._ctr("containers", "ls", "-q").split()
        if left:  # Of a run that was killed; the runtime must not take them for its own.
            self._ctr("containers", "rm", *left)
            self._parts["containerd"].kill()
            subprocess.run([*self._inside, "pkill", "-x", "containerd"], check=False)
            self._parts["containerd"].wait()
            self._spawn("containerd", *command)
            self._parts.wait_until(self._runs_containers, "containerd")

    def _start_kubelet(self) -> None:
        serving = self._authority.server(
            "kubelet", addresses=(ADDRESS,), user=f"system:node:{NAME}"
        )
        names = self._home / "resolv.conf"
        names.write_text(f"nameserver {DNS}\n")
        settings = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": f"unix://{self._socket}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{_make_cgroups(self._home.name)}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "enforceNodeAllocatable": [],
            "oomScoreAdj": 0,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(self._authority.own.certificate)},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(serving.certificate),
            "tlsPrivateKeyFile": str(serving.key),
            "clusterDomain": "cluster.local",
            "clusterDNS": [DNS],
            "resolvConf": str(names),
            "volumePluginDir": str(self._home / "volume-plugins"),
            "podLogsDir": str(self._home / "pods"),
            # Images cannot be pulled again, and the disk may be as full as it likes.
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "evictionHard": {
                "memory.available": "100Mi",
                "nodefs.available": "1%",
                "imagefs.available": "1%",
                "nodefs.inodesFree": "1%",
            },
            "serializeImagePulls": False,
            "nodeStatusUpdateFrequency": "5s",
            "syncFrequency": "10s",
        }
        (self._home / "kubelet.json").write_text(json.dumps(settings))
        self._spawn(
            "kubelet",
            *self._inside,
            str(self._programs / "kubelet"),
            f"--config={self._home / 'kubelet.json'}",
            f"--kubeconfig={self._clients_of_node['node']}",
            f"--root-dir={self._home / 'kubelet'}",
            f"--cert-dir={self._home / 'keys'}",
            f"--hostname-override={NAME}",
            f"--node-ip={ADDRESS}",
        )
        proxy = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "clientConnection": {"kubeconfig": str(self._clients_of_node["proxy"])},
            "clusterCIDR": PODS,
            "hostnameOverride": NAME,
            "mode": "nftables",
            "bindAddress": "0.0.0.0",
            "healthzBindAddress": "127.0.0.1:10256",
            "metricsBindAddress": "127.0.0.1:10249",
            "nodePortAddresses": [f"{ADDRESS}/32"],
            "oomScoreAdj": 0,
            "conntrack": {
                "maxPerCore": 0,
                "min": 0,
                "tcpEstablishedTimeout": "0s",
                "tcpCloseWaitTimeout": "0s",
            },
        }
        (self._home / "proxy.json").write_text(json.dumps(proxy))
        self._spawn(
            "kube-proxy",
            str(self._programs / "kube-proxy"),
            f"--config={self._home / 'proxy.json'}",
        )

    # How

    def _spawn(self, name: str, *command: str) -> None:
        path = f"{self._programs}:/usr/sbin:/usr/bin:/sbin:/bin"
        self._parts.start(name, list(command), {"PATH": path, "HOME": str(self._home)})

    def _ctr(self, *args: str) -> str:
        program = [str(self._programs / "ctr"), "--address", str(self._socket), "-n", "k8s.io"]
        done = subprocess.run([*self._inside, *program, *args], capture_output=True, text=True)
        if done.returncode:
            raise NodeFailed(f"ctr {' '.join(args)}: {done.stderr.strip()}")
        return done.stdout

    def _runs_containers(self) -> bool:
        with suppress(NodeFailed):
            self._ctr("version")
            return True
        return False

    def _is_ready(self) -> bool:
        said = self.kubectl("get", "node", NAME, "-o", "json")
        if said.returncode:
            return False
        conditions = json.loads(said.stdout).get("status", {}).get("conditions", ())
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def _answers(self, path: str) -> bool:
        return answers(f"https://{ADDRESS}:{_API_PORT}{path}", self._tls)


def _containerd(root: Path, state: Path, socket: Path, networks: Path) -> str:
    runtime = 'plugins."io.containerd.cri.v1.runtime"'
    unused = ["nri.v1.nri", "internal.v1.opt", "internal.v1.tracing", "tracing.processor.v1.otlp"]
    unused += [
        f"snapshotter.v1.{name}" for name in ("blockfile", "btrfs", "devmapper", "erofs", "zfs")
    ]
    return f"""
version = 3
root = "{root}"
state = "{state}"
oom_score = 0
disabled_plugins = {json.dumps([f"io.containerd.{name}" for name in unused])}
[grpc]
  address = "{socket}"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "localhost/pause:1"
[{runtime}]
  restrict_oom_score_adj = true
  [{runtime}.cni]
    bin_dirs = ["{PLUGINS}"]
    conf_dir = "{networks}"
  [{runtime}.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [{runtime}.containerd.runtimes.runc.options]
      BinaryName = "/usr/sbin/runc"
      SystemdCgroup = false
"""


def _pod_network() -> dict[str, Any]:
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": False,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": "/run/ipam",
            "ranges": [[{"subnet": PODS}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge, portmap]}


def _cluster_dns() -> str:
    text = (Path(__file__).parent / "dns.yaml").read_text()
    return text.replace("DNS_ADDRESS", DNS)


def _hierarchies() -> list[Path]:
    """Of cgroups: one folder, or with version 1 one for each controller."""
    if (_CGROUPS / "cgroup.controllers").exists():
        return [_CGROUPS]
    return [each for each in _CGROUPS.iterdir() if (each / "cgroup.procs").exists()]


def _make_cgroups(name: str) -> str:
    """The node's own, beside whatever else runs containers here."""
    for hierarchy in _hierarchies():
        own = hierarchy / name
        own.mkdir(exist_ok=True)
        if (hierarchy / "cgroup.controllers").exists():
            known = (hierarchy / "cgroup.controllers").read_text().split()
            wanted = " ".join(f"+{each}" for each in known)
            for folder in (hierarchy, own):
                with suppress(OSError):
                    (folder / "cgroup.subtree_control").write_text(wanted)
        for part in ("cpuset.cpus", "cpuset.mems"):
            if (own / part).exists() and not (own / part).read_text().strip():
                (own / part).write_text((hierarchy / part).read_text())
    return name


def _remove_cgroups(name: str) -> None:
    for hierarchy in _hierarchies():
        for folder in [*sorted((hierarchy / name).rglob("*/"), reverse=True), hierarchy / name]:
            with suppress(OSError):
                folder.rmdir()


def _remove_what_killed_runs_left() -> None:
    """Called by who holds the lock, so no other node runs."""
    places: set[Path] = {Path(tempfile.gettempdir()), Path("/dev/shm")}
    for folder in (each for place in places for each in place.glob(f"{_PREFIX}*")):
        shutil.rmtree(folder, ignore_errors=True)
    for hierarchy in _hierarchies():
        for folder in hierarchy.glob(f"{_PREFIX}*"):
            _remove_cgroups(folder.name)
