"""Budgets in a Kubernetes cluster: streams, blocks and claims as objects of its API."""
