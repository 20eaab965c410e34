"""Pipelines of Kubeflow on this machine, with their budget: what `privatekube run` does.

Two processes. The command (`running`) keeps the run's folder and ledger, shows progress and gives
the budget back. The worker (`worker`) runs the tasks with `kfp.local` and tells what happens; with
`compiling` it is all of this package that imports kfp. Whichever of the two dies, the tasks end,
and what is left is a folder from which the same run can go on.
"""
