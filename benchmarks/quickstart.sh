#!/usr/bin/env bash
# Three seeds of the quickstart, one after the other: success before and after, seconds, memory. One JSON line per seed.
set -euo pipefail
cd "$(dirname "$0")/.."
RUNS="$(mktemp -d)"
trap 'rm -rf "$RUNS"' EXIT
for seed in ${SEEDS:-0 1 2}; do
    .venv/bin/python - "$RUNS" "$seed" <<'PY'
import json, resource, subprocess, sys, time

runs, seed = sys.argv[1:]
began = time.monotonic()
command = [".venv/bin/envhub", "train", "configs/quickstart.yaml", f"run.dir={runs}", f"run.name=s{seed}", f"run.seed={seed}", "--json"]
result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps({
    "seed": int(seed),
    "before": round(result["before"]["success_rate"], 3),
    "after": round(result["after"]["success_rate"], 3),
    "updates": result["updates"],
    "seconds": round(time.monotonic() - began),
    "cpu_seconds": round(used.ru_utime + used.ru_stime),
    "memory_mib": used.ru_maxrss // 1024,
}))
PY
done
