"""The artifact that carries a claim from one component to the next."""

from __future__ import annotations

from kfp.dsl import Artifact


class PrivacyClaim(Artifact):
    """A claim on privacy budget: which one it is, and what was granted.

    It carries no authority: whoever is handed one looks up in the ledger what the claim is worth.
    """

    # Kubeflow takes no other namespace than `system` for types of one's own.
    schema_title = "system.PrivacyClaim"
    schema_version = "0.1.0"
