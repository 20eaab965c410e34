"""A cluster to test against: one of our own that can be broken at will, or any that exists.

`Cluster` is what every test may ask of either. `ControlPlane` runs etcd, the API server and the
controller manager on this machine's loopback address and adds restarts and signals;
`ExistingCluster` refuses those.

What a killed test run leaves behind: no process (the kernel kills them with it), and a folder of
keys, logs and etcd's data, which the next control plane removes.
"""

import fcntl
import json
import os
import random
import re
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import kubernetes.client
import kubernetes.config
import yaml

from tests.kubernetes.control_plane.binaries import Binaries
from tests.kubernetes.control_plane.certificates import Authority
from tests.kubernetes.control_plane.parts import Parts, answers

EXISTING = "PRIVATEKUBE_TEST_KUBECONFIG"
"""The environment variable that names a cluster to test against, instead of our own."""

ETCD = "etcd"
API_SERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"

_PREFIX = "privatekube-control-plane-"
_READY_SECONDS = 180
_SHM = Path("/dev/shm")
_SHM_BYTES = 2 << 30
_ETCD_QUOTA_BYTES = 8 << 30
_GARBAGE = {"GOGC": "400", "GOMEMLIMIT": "1500MiB"}
"""How lazily the parts collect their garbage: a fifth less CPU time for 100 MB more each."""
_CONTROLLERS = (
    "clusterrole-aggregation",
    "garbagecollector",
    "namespace",
    "root-ca-cert-publisher",
    "serviceaccount",
)
"""What tests need of the controller manager: the others work for nodes and for pods."""

_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
"""How kubectl asks which kinds there are."""

Manifest = Path | str | Mapping[str, Any] | Iterable[Mapping[str, Any]]


class ControlPlaneFailed(RuntimeError):
    """A part of the control plane did not start, or died; carries the end of its log."""


class NeedsOwnControlPlane(RuntimeError):
    """The cluster is somebody else's: its processes are not ours to stop."""


class Cluster:
    """What tests need of any cluster."""

    def __init__(self, kubeconfig: Path, kubectl: Path, folder: Path) -> None:
        self.kubeconfig = kubeconfig
        """The path of an administrator's kubeconfig."""
        self.kubectl_path = kubectl
        self._folder = folder
        self._clients: list[kubernetes.client.ApiClient] = []
        self._admin: kubernetes.client.ApiClient | None = None

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return str(self._described()["server"])

    @property
    def admin(self) -> kubernetes.client.ApiClient:
        """The administrator's client that all who need no connections of their own share."""
        if self._admin is None:
            self._admin = self.client()
        return self._admin

    def client(self, token: str | None = None) -> kubernetes.client.ApiClient:
        """A client of its own connections, as administrator or as the token's owner."""
        path = self.kubeconfig if token is None else self.kubeconfig_for(token)
        settings = kubernetes.client.Configuration()
        kubernetes.config.load_kube_config(str(path), client_configuration=settings)
        if re.match(r"https://(127\.0\.0\.1|localhost)[:/]", settings.host):
            settings.proxy = None
        made = kubernetes.client.ApiClient(settings)
        self._clients.append(made)
        return made

    def kubectl(
        self,
        *args: str,
        kubeconfig: Path | None = None,
        input: str | None = None,
        timeout: float = 180,
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl to its end, whether it succeeds or not; `input` is its standard input."""
        return subprocess.run(
            [
                str(self.kubectl_path),
                f"--kubeconfig={kubeconfig or self.kubeconfig}",
                f"--cache-dir={self._folder / 'kubectl-cache'}",
                *args,
            ],
            input="" if input is None else input,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def apply(self, manifest: Manifest) -> list[str]:
        """Apply a file, a folder, a kustomization, YAML text or objects.

        Returns:
            What was applied, as kubectl names it (`kind.group/name`), once the server serves the
            custom resources defined in it.
        """
        if isinstance(manifest, Path):
            kustomized = (manifest / "kustomization.yaml").is_file()
            what, text = [("-k" if kustomized else "-f"), str(manifest)], None
        elif isinstance(manifest, str):
            what, text = ["-f", "-"], manifest
        else:
            objects = [manifest] if isinstance(manifest, Mapping) else list(manifest)
            listed = {"apiVersion": "v1", "kind": "List", "items": objects}
            what, text = ["-f", "-"], json.dumps(listed)
        applied = self._checked("apply", *what, "-o", "name", input=text).split()
        defined = [name for name in applied if name.startswith("customresourcedefinition.")]
        if defined:
            self._checked("wait", "--for=condition=Established", "--timeout=150s", *defined)
            self.wait_until_served(name.partition("/")[2] for name in defined)
        return applied

    def wait_until_served(self, definitions: Iterable[str]) -> None:
        """Wait until the kinds of these definitions can be used, by kubectl as well.

        A definition is established a moment before the server serves its kind, and the list of
        kinds that kubectl asks for comes another moment later.
        """
        api = kubernetes.client.ApiextensionsV1Api(self.admin)
        deadline = time.monotonic() + _READY_SECONDS
        for name in definitions:
            spec = api.read_custom_resource_definition(name).spec
            versions = [each.name for each in spec.versions if each.served]
            while not all(self._serves(spec.group, each, spec.names.plural) for each in versions):
                if time.monotonic() > deadline:
                    raise ControlPlaneFailed(f"{name} is not served after {_READY_SECONDS} s.")
                time.sleep(0.05)

    def _serves(self, group: str, version: str, plural: str) -> bool:
        objects = self._get(f"/apis/{group}/{version}/{plural}?limit=1")
        resources = self._get(f"/apis/{group}/{version}")
        groups = self._get("/apis", accept=_DISCOVERY)
        if objects is None or resources is None or groups is None:
            return False
        if plural not in [each["name"] for each in resources["resources"]]:
            return False
        if "groups" in groups:  # A server of before 1.26 lists no more than these.
            return group in [each["name"] for each in groups["groups"]]
        return plural in [
            resource["resource"]
            for found in groups["items"]
            if found["metadata"]["name"] == group
            for each in found["versions"]
            if each["version"] == version
            for resource in each.get("resources", ())
        ]

    def _get(self, path: str, accept: str = "application/json") -> Any:
        """What the server answers an administrator, or None when it has no answer."""
        try:
            answer = self.admin.call_api(
                path,
                "GET",
                header_params={"Accept": accept},
                auth_settings=["BearerToken"],
                _preload_content=False,
                _return_http_data_only=True,
            )
        except kubernetes.client.ApiException:
            return None
        return json.loads(answer.data)

    def token(self, namespace: str, service_account: str, *, seconds: int = 3600) -> str:
        """A token of a service account; the server gives none under 600 seconds.

        That of a namespace's `default` is waited for: a controller makes it a moment later.
        """
        api = kubernetes.client.CoreV1Api(self.admin)
        spec = kubernetes.client.V1TokenRequestSpec(audiences=[], expiration_seconds=seconds)
        request = kubernetes.client.AuthenticationV1TokenRequest(spec=spec)
        deadline = time.monotonic() + _READY_SECONDS
        while True:
            try:
                answer = api.create_namespaced_service_account_token(
                    service_account, namespace, request
                )
                return str(answer.status.token)
            except kubernetes.client.ApiException as error:
                missing = error.status == 404 and service_account == "default"
                if not missing or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def kubeconfig_for(self, token: str, *, namespace: str = "default") -> Path:
        """The path of a kubeconfig whose user is the token's owner."""
        handle, path = tempfile.mkstemp(prefix="user-", suffix=".kubeconfig", dir=self._folder)
        with os.fdopen(handle, "w") as file:
            file.write(kubeconfig(self._described(), {"token": token}, namespace))
        return Path(path)

    @property
    def pids(self) -> dict[str, int]:
        """The process ids of the parts that run, by name."""
        raise self._not_ours()

    @property
    def logs(self) -> Path:
        """The folder with a log of each part."""
        raise self._not_ours()

    def restart_etcd(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop etcd and start it on the same data; returns when the API server is ready again.

        Any part that outlasts SIGTERM for 5 seconds is killed.
        """
        raise self._not_ours()

    def restart_api_server(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop the API server and start it at the same address; returns when it is ready."""
        raise self._not_ours()

    def restart_controller_manager(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Stop and start it: it then collects garbage of new kinds at once, not after 30 s."""
        raise self._not_ours()

    def kill(self, name: str, how: signal.Signals) -> None:
        """Send a signal to a part: SIGSTOP to freeze it, SIGCONT to thaw it, SIGKILL."""
        raise self._not_ours()

    def stop(self) -> None:
        """Close every client that was handed out."""
        while self._clients:
            client = self._clients.pop()
            client.rest_client.pool_manager.clear()
            client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _checked(self, *args: str, input: str | None = None) -> str:
        done = self.kubectl(*args, input=input)
        if done.returncode:
            raise RuntimeError(f"kubectl {' '.join(args)}: {done.stderr.strip()}")
        return done.stdout

    def _described(self) -> dict[str, Any]:
        """The `cluster` of the administrator's kubeconfig, with absolute paths."""
        config = yaml.safe_load(self.kubeconfig.read_text())
        context = _named(config, "contexts", config["current-context"])["context"]
        cluster = dict(_named(config, "clusters", context["cluster"])["cluster"])
        if "certificate-authority" in cluster:
            path = self.kubeconfig.parent / cluster["certificate-authority"]
            cluster["certificate-authority"] = str(path)
        return cluster

    def _not_ours(self) -> NeedsOwnControlPlane:
        return NeedsOwnControlPlane(
            f"This needs our own control plane, but {self.server} is a cluster that was there "
            f"before; unset {EXISTING} to start one."
        )


class ExistingCluster(Cluster):
    """The cluster of a kubeconfig somebody named. Its current context must be an administrator."""

    def __init__(self, kubeconfig: Path, kubectl: Path) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="privatekube-test-")
        super().__init__(kubeconfig, kubectl, Path(self._temporary.name))

    def stop(self) -> None:
        super().stop()
        self._temporary.cleanup()


class ControlPlane(Cluster):
    """Our own etcd, API server and controller manager, until `stop` or the end of a `with`."""

    def __init__(
        self,
        binaries: Binaries,
        *,
        api_server_args: Iterable[str] = (),
        controller_manager_args: Iterable[str] = (),
    ) -> None:
        """Nothing runs before `start`, which `with` calls. The arguments add to our own."""
        _remove_what_killed_runs_left()
        self._home, self._held = _locked_folder()
        super().__init__(self._home / "admin.kubeconfig", binaries.kubectl, self._home)
        self._binaries = binaries
        self._api_server_args = list(api_server_args)
        self._controller_manager_args = list(controller_manager_args)
        self._data = _data_folder(self._home)
        self._commands: dict[str, list[str]] = {}
        self._parts = Parts(self._home, ControlPlaneFailed, _READY_SECONDS)

    def start(self) -> Self:
        """Start all parts; returns when the API server serves and service accounts are made.

        Raises:
            ControlPlaneFailed: one of them did not start.
        """
        try:
            for attempt in range(3):
                try:
                    self._prepare()
                    self._spawn(ETCD)
                    self._spawn(API_SERVER)
                    self._wait_until_ready()
                    if CONTROLLER_MANAGER in self._commands:
                        self._spawn(CONTROLLER_MANAGER)
                        self._parts.wait_until(self._has_service_account, CONTROLLER_MANAGER)
                    return self
                except ControlPlaneFailed as error:
                    # Between our choice of a port and its use, another process may take it.
                    if attempt == 2 or "address already in use" not in str(error):
                        raise
                    self._parts.kill_all()
            raise AssertionError("unreachable")
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self.start()

    @property
    def pids(self) -> dict[str, int]:
        return self._parts.pids

    @property
    def logs(self) -> Path:
        return self._parts.logs

    def restart_etcd(self, how: signal.Signals = signal.SIGTERM) -> None:
        self._restart(ETCD, how)
        self._wait_until_ready()

    def restart_api_server(self, how: signal.Signals = signal.SIGTERM) -> None:
        self._restart(API_SERVER, how)
        self._wait_until_ready()

    def restart_controller_manager(self, how: signal.Signals = signal.SIGKILL) -> None:
        self._restart(CONTROLLER_MANAGER, how)

    def kill(self, name: str, how: signal.Signals) -> None:
        self._parts[name].send_signal(how)
        if how == signal.SIGKILL:
            self._parts[name].wait()

    def stop(self) -> None:
        super().stop()
        self._parts.close()
        shutil.rmtree(self._data, ignore_errors=True)
        shutil.rmtree(self._home, ignore_errors=True)
        self._held.close()

    def _prepare(self) -> None:
        """Keys, kubeconfigs and command lines, for ports that are free now."""
        for folder in (self.logs, self._home / "keys", self._data):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(mode=0o700)
        authority = Authority(self._home / "keys")
        serving = authority.server("servers")
        signing = authority.signing_key("service-accounts")
        admin = authority.client("admin", user="admin", group="system:masters")
        manager = authority.client("manager", user=f"system:{CONTROLLER_MANAGER}")
        client_port, peer_port, api_port, manager_port = _free_ports(4)

        cluster = {
            "server": f"https://127.0.0.1:{api_port}",
            "certificate-authority": str(authority.own.certificate),
        }
        manager_kubeconfig = self._home / "manager.kubeconfig"
        for path, user in ((self.kubeconfig, admin), (manager_kubeconfig, manager)):
            shown = {"client-certificate": str(user.certificate), "client-key": str(user.key)}
            path.write_text(kubeconfig(cluster, shown, "default"))
        self._tls = ssl.create_default_context(cafile=str(authority.own.certificate))
        self._tls.load_cert_chain(admin.certificate, admin.key)

        etcd_url, peer_url = f"http://127.0.0.1:{client_port}", f"http://127.0.0.1:{peer_port}"
        self._commands = {
            ETCD: [
                str(self._binaries.etcd),
                "--name=only",
                f"--data-dir={self._data}",
                f"--listen-client-urls={etcd_url}",
                f"--advertise-client-urls={etcd_url}",
                f"--listen-peer-urls={peer_url}",
                f"--initial-advertise-peer-urls={peer_url}",
                f"--initial-cluster=only={peer_url}",
                # It elects itself: no need to wait a second for others.
                "--heartbeat-interval=20",
                "--election-timeout=200",
                f"--quota-backend-bytes={_ETCD_QUOTA_BYTES}",
                "--log-level=warn",
                *self._fsync(),
            ],
            API_SERVER: [
                str(self._binaries.kube_apiserver),
                f"--etcd-servers={etcd_url}",
                "--bind-address=127.0.0.1",
                "--advertise-address=127.0.0.1",
                f"--secure-port={api_port}",
                "--endpoint-reconciler-type=none",
                "--service-cluster-ip-range=10.0.0.0/24",
                f"--tls-cert-file={serving.certificate}",
                f"--tls-private-key-file={serving.key}",
                f"--client-ca-file={authority.own.certificate}",
                "--authorization-mode=RBAC",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={signing.certificate}",
                f"--service-account-signing-key-file={signing.key}",
                f"--cert-dir={self._home / 'keys'}",
                # Else, told to stop, it waits for watches to end, which they never do.
                *(
                    ["--shutdown-watch-termination-grace-period=1s"]
                    if _version(self._binaries.kube_apiserver) >= (1, 28)
                    else []
                ),
                *self._api_server_args,
            ],
        }
        if self._binaries.kube_controller_manager is None:
            self._commands[API_SERVER].append("--disable-admission-plugins=ServiceAccount")
            return
        program = self._binaries.kube_controller_manager
        self._commands[CONTROLLER_MANAGER] = [
            str(program),
            f"--kubeconfig={manager_kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--secure-port={manager_port}",
            # Else it makes a key of its own, for a second.
            f"--tls-cert-file={serving.certificate}",
            f"--tls-private-key-file={serving.key}",
            # Before 1.24 it also serves without TLS, on every address, unless told not to.
            *(["--port=0"] if _version(program) < (1, 24) else []),
            "--leader-elect=false",
            f"--controllers={','.join(_CONTROLLERS)}",
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={signing.key}",
            f"--root-ca-file={authority.own.certificate}",
            "--kube-api-qps=300",
            "--kube-api-burst=500",
            *self._controller_manager_args,
        ]

    def _fsync(self) -> list[str]:
        """Do not wait for a disk: what a killed etcd wrote is kept; only a power cut loses it."""
        if self._data.is_relative_to(_SHM) or _version(self._binaries.etcd) < (3, 5):
            return []
        return ["--unsafe-no-fsync"]

    def _spawn(self, name: str) -> None:
        env = dict(_GARBAGE)
        env |= {key: value for key, value in os.environ.items() if not key.startswith("ETCD_")}
        if os.uname().machine == "aarch64":
            env["ETCD_UNSUPPORTED_ARCH"] = "arm64"
        self._parts.start(name, self._commands[name], env)

    def _restart(self, name: str, how: signal.Signals) -> None:
        self._parts.end(name, how)
        self._spawn(name)

    def _wait_until_ready(self) -> None:
        self._parts.wait_until(lambda: self._answers("/readyz"), ETCD, API_SERVER)

    def _has_service_account(self) -> bool:
        return self._answers("/api/v1/namespaces/default/serviceaccounts/default")

    def _answers(self, path: str) -> bool:
        return answers(self.server + path, self._tls)


def kubeconfig(cluster: Mapping[str, Any], user: Mapping[str, str], namespace: str) -> str:
    context = {"cluster": "test", "user": "test", "namespace": namespace}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": user}],
            "contexts": [{"name": "test", "context": context}],
        },
        indent=2,
    )


def _named(config: Mapping[str, Any], kind: str, name: str) -> dict[str, Any]:
    [found] = [each for each in config[kind] if each["name"] == name]
    return dict(found)


def _version(program: Path) -> tuple[int, int]:
    printed = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
    match = re.search(r"[v ](\d+)\.(\d+)\.", printed)
    if match is None:
        raise ControlPlaneFailed(f"{program} --version prints {printed!r}, which is no version")
    return int(match[1]), int(match[2])


def _free_ports(count: int) -> list[int]:
    """Ports below those the kernel gives to outgoing connections.

    While a server restarts, a client that keeps trying its port may otherwise be given that very
    port as its own end, connect to itself, and keep the server from coming back.
    """
    try:
        bound = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except OSError:
        bound = 32768
    candidates = range(10000, bound) if bound > 12000 else range(1024, 65536)
    ports: list[int] = []
    for port in random.SystemRandom().sample(candidates, len(candidates)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise ControlPlaneFailed("No port is free on 127.0.0.1.")


def _locked_folder() -> tuple[Path, Any]:
    """A new folder, and its lock file: who finds it unlocked knows that its owner is gone."""
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    held = (folder / "lock.new").open("w")
    fcntl.flock(held, fcntl.LOCK_EX)
    (folder / "lock.new").rename(folder / "lock")
    return folder, held


def _data_folder(home: Path) -> Path:
    """Memory where there is enough: etcd waits for the disk at every write."""
    try:
        usage = shutil.disk_usage(_SHM)
    except OSError:
        return home / "data"
    roomy = usage.free >= _SHM_BYTES and os.access(_SHM, os.W_OK)
    return (_SHM if roomy else home) / (home.name if roomy else "data")


def _remove_what_killed_runs_left() -> None:
    temporary = Path(tempfile.gettempdir())
    for folder in temporary.glob(f"{_PREFIX}*"):
        try:
            with (folder / "lock").open() as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(_SHM / folder.name, ignore_errors=True)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # Somebody's own, somebody else's, or being made.
            continue
