#!/bin/bash
# Times whole commands of this project against the tools of the same names that are installed, in turn, on one made-up
# pool: cpu seconds and peak memory, the median of several runs, and the ratio.
#
#   cargo build --release && benches/compare.sh [MAPPINGS] [SNAPSHOTS] [RUNS]
#
# OTHER names the folder of the other tools (default /usr/sbin). Needs GNU time and room for the pool in DIR (default
# /dev/shm). Run it while nothing else runs: shared processors make single figures worthless, ratios less so.

set -euo pipefail
cd "$(dirname "$0")/.."
mappings=${1:-2000000} snapshots=${2:-5} runs=${3:-5}
other=${OTHER:-/usr/sbin}
own=$PWD/target/release/pdata_tools
work=$(mktemp -d "${DIR:-/dev/shm}/compare.XXXXXX")
trap 'rm -rf "$work"' EXIT
pool=$work/pool.img

# Leaves of 8-byte values hold 252 mappings; twice that room, and some for the rest.
truncate -s $((((mappings / 126) * (snapshots + 2) + 20000) * 4096)) "$pool"
"$own" thin_generate_metadata -o "$pool" --mappings "$mappings" --snapshots "$snapshots" --run-length 1 --seed 1
echo "a pool of $mappings mappings with $snapshots snapshots"

# cpu seconds and peak KiB of a command, the medians of its runs
measure() {
    for ((run = 0; run < runs; run++)); do
        /usr/bin/time -f '%U %S %M' -o "$work/time" "$@" >/dev/null 2>&1
        awk '{ print $1 + $2, $3 }' "$work/time"
    done | sort -n | awk '{ cpu[NR] = $1; peak[NR] = $2 } END { m = int((NR + 1) / 2); print cpu[m], peak[m] }'
}

for tool in thin_check thin_dump; do
    read -r own_cpu own_peak < <(measure "$own" "$tool" "$pool")
    line="$tool: $own_cpu s cpu, $((own_peak / 1024)) MiB"
    if [ -x "$other/$tool" ]; then
        read -r other_cpu other_peak < <(measure "$other/$tool" "$pool")
        ratio=$(awk -v a="$own_cpu" -v b="$other_cpu" 'BEGIN { printf "%.3f", a / b }')
        line+="; the other one: $other_cpu s cpu, $((other_peak / 1024)) MiB; ratio $ratio"
    fi
    echo "$line"
done
