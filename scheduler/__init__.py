"""The in-cluster scheduler: watches streams, blocks and claims, and grants budget to claims."""
