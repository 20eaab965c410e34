"""The differentially private steps themselves: what is computed on a claim's data.

Nothing here knows kfp, ledgers' files or runs. A step is handed the data, the mechanism that its
claim's plan names, and what one protected unit is; it calibrates its noise to these.
"""
