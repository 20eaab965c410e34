"""What a policy would do: the scheduling core under a virtual clock.

Nothing here decides who is granted. `replaying` hands a workload to the very pool that the embedded
ledger and the cluster's scheduler use, so what it shows is what they would do.
"""
