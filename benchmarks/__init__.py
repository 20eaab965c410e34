"""`python -m benchmarks`: each part measures what the design promises, and judges it."""
