"""The command line `privatekube`: streams, blocks and claims of a ledger."""

from privatekube_kfp.cli.app import main

__all__ = ["main"]
