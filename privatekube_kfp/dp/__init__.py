"""The differentially private steps themselves: what is computed on a claim's data.

Nothing here knows kfp, ledgers' files or runs. A step is handed the data, the mechanism that its
claim's plan names, and what one protected unit is; it calibrates its noise to these.

`statistics` are counts, means and the like. `models` are the eight of the paper, `embeddings` turn
texts into what they read, `units` say what is protected, `training` spends a DP-SGD step of a plan,
`evaluation` a Laplace or Gaussian one. Modules that train import torch, and nobody else does.
"""
