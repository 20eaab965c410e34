"""A Kubernetes cluster of one node that runs real pods, and what is run on it.

`needs` says what a machine must have for it and installs Debian's part. `images` builds our images
from the Dockerfiles. `cluster` starts the node in namespaces of its own, `store` an S3 server
beside it, `tasks` runs components as Kubeflow does, in pods.
"""
