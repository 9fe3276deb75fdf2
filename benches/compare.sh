#!/bin/bash
# Times whole commands of this project on one made-up pool, in turn with one pass over its blocks (benches/floor.rs) and
# with the tools of the same names that are installed: cpu seconds and peak memory, the median of several runs, and ratios.
#
#   cargo build --release --bins --examples && benches/compare.sh [MAPPINGS] [SNAPSHOTS] [RUNS]
#
# OTHER names the folder of the other tools (default /usr/sbin). Needs GNU time and room for some copies of the pool in DIR
# (default /dev/shm). Run it while nothing else runs: shared processors make single figures worthless, ratios less so.
# Peak memory counts the pages of mapped files, which the page cache holds anyway.

set -euo pipefail
cd "$(dirname "$0")/.."
mappings=${1:-2000000} snapshots=${2:-5} runs=${3:-5}
other=${OTHER:-/usr/sbin}
own=$PWD/target/release
work=$(mktemp -d "${DIR:-/dev/shm}/compare.XXXXXX")
trap 'rm -rf "$work"' EXIT
pool=$work/pool.img out=$work/out.img xml=$work/pool.xml

# Leaves of 8-byte values hold 252 mappings; twice that room, and some for the rest.
size=$((((mappings / 126) * (snapshots + 2) + 20000) * 4096))
truncate -s "$size" "$pool" "$out"
"$own/pdata_tools" thin_generate_metadata -q -o "$pool" --mappings "$mappings" --snapshots "$snapshots" --run-length 1 --seed 1
"$own/pdata_tools" thin_dump --flat -o "$xml" "$pool" # 0.9 cannot read shared runs

# cpu seconds and peak KiB of a command, the medians of its runs
measure() {
    for ((run = 0; run < runs; run++)); do
        /usr/bin/time -f '%U %S %M' -o "$work/time" "$@" >/dev/null 2>&1 || { echo "failed: $*" >&2; exit 1; }
        awk '{ print $1 + $2, $3 }' "$work/time"
    done | sort -n | awk '{ cpu[NR] = $1; peak[NR] = $2 } END { m = int((NR + 1) / 2); print cpu[m], peak[m] }'
}

ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", a / (b > 0 ? b : 0.01) }'; }

echo "a pool of $mappings mappings with $snapshots snapshots, $((size >> 20)) MiB"
printf '%-28s %8s %8s %10s %8s %10s\n' command 'cpu s' MiB 'to floor' 'other s' 'to other'
while read -r tool arguments; do
    read -r floor _ < <(measure "$own/examples/floor" "$pool")
    # shellcheck disable=SC2086 # arguments are words
    read -r cpu peak < <(measure "$own/pdata_tools" "$tool" $arguments)
    theirs=- times=-
    if [[ -x $other/$tool ]]; then
        # shellcheck disable=SC2086
        read -r theirs _ < <(measure "$other/$tool" $arguments)
        times=$(ratio "$cpu" "$theirs")
    fi
    printf '%-28s %8s %8s %10s %8s %10s\n' "$tool" "$cpu" $((peak / 1024)) "$(ratio "$cpu" "$floor")" "$theirs" "$times"
done <<END
thin_check $pool
thin_dump $pool
thin_restore -i $xml -o $out
thin_repair -i $pool -o $out
thin_metadata_pack -i $pool -o $work/pool.pack
thin_delete --dry-run --no-check --dev-id 1 $pool
END
