"""The README's example objects, with changes, and a cluster to try them on."""

import copy
import json
import re
from pathlib import Path

import yaml
from kubernetes.client import CustomObjectsApi
from kubernetes.client.exceptions import ApiException

ROOT = Path(__file__).resolve().parents[2]
CRDS = ROOT / "crds"
GROUP, VERSION = "privatekube.io", "v1alpha1"
STREAMS, BLOCKS, CLAIMS = "privatedatastreams", "privatedatablocks", "privacyclaims"
PLURALS = [STREAMS, BLOCKS, CLAIMS]
SINGULARS = [(plural.removesuffix("s"), plural) for plural in PLURALS]
REMOVED = object()

DEFINITIONS = {plural: yaml.safe_load((CRDS / f"{plural}.yaml").read_text()) for plural in PLURALS}
EXAMPLES = {
    f"{example['kind'].lower()}s": example
    for example in map(
        yaml.safe_load,
        re.findall(r"^```yaml\n(.*?)^```$", (CRDS / "README.md").read_text(), re.S | re.M),
    )
}


def schema(plural, path=""):
    """The schema of a field: `spec.requests.id`, through lists as through objects."""
    found = DEFINITIONS[plural]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for name in filter(None, path.split(".")):
        found = found.get("items", found)["properties"][name]
    return found


def example(plural, name, **changes):
    """The README's example under another name, some of its fields changed or removed.

    A change names its field by a path such as `spec.requests.0.id`.
    """
    made = copy.deepcopy(EXAMPLES[plural])
    made["metadata"]["name"] = name
    return changed(made, changes)


def changed(body, changes):
    """A copy of an object with some of its fields changed, added or removed."""
    made = copy.deepcopy(body)
    for path, value in changes.items():
        *parents, last = [int(key) if key.isdigit() else key for key in path.split(".")]
        place = made
        for key in parents:
            place = place[key]
        if value is REMOVED:
            del place[last]
        elif isinstance(place, list) and last == len(place):
            place.append(value)
        else:
            place[last] = value
    return made


class Objects:
    """Streams, blocks and one namespace's claims; cluster-scoped ones go when the test ends."""

    def __init__(self, cluster, namespace):
        self.cluster = cluster
        self.namespace = namespace
        self.api = CustomObjectsApi(cluster.admin)
        self.made = []

    def name(self, plural):
        """A name that no other test uses."""
        return f"{plural}-{self.namespace}"

    def create(self, plural, body):
        if plural == CLAIMS:
            return self.api.create_namespaced_custom_object(
                GROUP, VERSION, self.namespace, plural, body
            )
        made = self.api.create_cluster_custom_object(GROUP, VERSION, plural, body)
        self.made.append((plural, made["metadata"]["name"]))
        return made

    def get(self, plural, name):
        if plural == CLAIMS:
            return self.api.get_namespaced_custom_object(
                GROUP, VERSION, self.namespace, plural, name
            )
        return self.api.get_cluster_custom_object(GROUP, VERSION, plural, name)

    def replace(self, plural, body, subresource=""):
        name = body["metadata"]["name"]
        scope = "namespaced" if plural == CLAIMS else "cluster"
        where = (self.namespace,) if plural == CLAIMS else ()
        call = getattr(self.api, f"replace_{scope}_custom_object{subresource}")
        return call(GROUP, VERSION, *where, plural, name, body)

    def edit(self, plural, body, changes):
        """Change an object's spec or metadata, or, where only that is named, its status."""
        of_status = all(path.split(".")[0] == "status" for path in changes)
        return self.replace(plural, changed(body, changes), "_status" if of_status else "")

    def before(self, case):
        """Make the object that a case of a rule begins with."""
        name = self.name(case.plural)
        changes = dict(case.before)
        status = changes.pop("status", None)
        made = self.create(case.plural, example(case.plural, name, **changes))
        return self.set_status(case.plural, name, status) if status else made

    def set_status(self, plural, name, status):
        body = self.get(plural, name) | {"status": status}
        return self.replace(plural, body, "_status")

    def apply(self, body):
        done = self.cluster.kubectl(
            "apply", "-n", self.namespace, "-f", "-", input=json.dumps(body)
        )
        plural = f"{body['kind'].lower()}s"
        if "created" in done.stdout and plural != CLAIMS:
            self.made.append((plural, body["metadata"]["name"]))
        return done

    def shown(self, *args):
        """The rows that `kubectl get` prints, as maps from column to cell."""
        done = self.cluster.kubectl("get", "-n", self.namespace, *args)
        assert done.returncode == 0, done.stderr
        header, *rows = done.stdout.splitlines()
        starts = [match.start() for match in re.finditer(r"\S+", header)]
        ends = [*starts[1:], None]
        cells = [slice(*ends_at) for ends_at in zip(starts, ends, strict=True)]
        return [{header[c].strip(): row[c].strip() for c in cells} for row in rows]

    def clean(self):
        for plural, name in self.made:
            try:
                self.api.delete_cluster_custom_object(GROUP, VERSION, plural, name)
            except ApiException as error:
                if error.status != 404:
                    raise
