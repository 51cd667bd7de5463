"""The evaluation gate: a fixed set of experiments, with the thresholds of all of them in `thresholds.toml`.

What would break without it: a change that passes every test of its own and makes recovery slower, the engine half as fast,
or an oracle blind. Nothing is drawn anew: seeds and workload stand in the file, so that two commits meet the same set.

parts      the experiments, each a few lines with what was measured and what is allowed
reference  what this machine can do at all, to compare throughput with
"""
