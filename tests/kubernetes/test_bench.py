"""The cluster benchmark runs to its end and reports all that it promises."""

from benchmarks import cluster


def test_the_cluster_benchmark_reports_all_four_ratios(binaries):
    sizes = cluster.Sizes(
        claims=10, rounds=1, one_by_one=3, counted=1, wide=12, past=120, restarts=1
    )
    said = []

    results = cluster.measure_with(binaries, sizes, judged=False, say=said.append)

    judged = [result for result in results if result.target is not None]
    throughput, writes, latency, restart = judged
    assert "claims granted per second over raw status updates" in throughput.name
    assert "12 blocks over those for 1 block" in writes.name
    assert writes.value == 1
    assert "99th percentile of create to Allocated" in latency.name
    assert "a term's begin over the raw list" in restart.name
    assert all(result.value > 0 for result in results)
    assert all(result.passed is None for result in results), "too small to judge"
    assert said[0].startswith("Cluster:")
