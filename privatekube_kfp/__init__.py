"""Privacy budget as a Kubernetes resource, handed to ML pipelines as Kubeflow components.

Importing this package does nothing but define its version: no connection, no configuration.
"""

__version__ = "0.1.0"
