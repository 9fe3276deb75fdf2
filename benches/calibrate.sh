#!/bin/sh
# Measures what the steps of a pool cost in a real kernel, and prints the prices for a cost profile of thin_replay: boots the
# distribution's kernel in an emulator whose clock counts instructions, deletes made-up devices, and fits what it took.
#
#   cargo build --release --bin pdata_tools && benches/calibrate.sh
#
# Needs qemu-system-x86_64, a static busybox, dmsetup, ldd, xz, apt-get and dpkg-deb (to fetch the kernel package, which is not
# installed), 600 MB in target/, and a quarter of an hour of one processor. No root. How busy the machine is doesn't matter.
# What each image took is kept in target/calibrate; remove that to measure again.

set -eu
cd "$(dirname "$0")/.."
top=$PWD kernel=$PWD/target/kernel work=$PWD/target/calibrate
tools=$top/target/release/pdata_tools
MODULES='crc32c_generic crc32c-intel libcrc32c dm-mod dm-bufio dm-persistent-data dm-bio-prison dm-thin-pool dm-zero'

die() {
    echo "calibrate.sh: $*" >&2
    exit 1
}
needs() { command -v "$1" || die "no $1: apt-get install $2"; }

needs qemu-system-x86_64 qemu-system-x86 >/dev/null
busybox=$(needs busybox busybox-static)
dmsetup=$(PATH=$PATH:/usr/sbin:/sbin && needs dmsetup dmsetup)
needs ldd libc-bin >/dev/null
needs xz xz-utils >/dev/null
if ldd "$busybox" >/dev/null 2>&1; then die 'busybox is not static: apt-get install busybox-static'; fi
[ -x "$tools" ] || die 'no target/release/pdata_tools: cargo build --release --bin pdata_tools'
[ -e "$kernel/vmlinuz" ] || needs apt-get apt >/dev/null
[ -e "$kernel/vmlinuz" ] || "$top/tests/kernel/fetch" "$kernel" || die 'no kernel could be fetched'

# The first file system, without what belongs to one image.
base() {
    rm -rf "$work/base"
    for folder in bin sbin lib lib64 dev proc sys tmp modules; do mkdir -p "$work/base/$folder"; done
    cp "$busybox" "$work/base/bin/busybox"
    cp "$dmsetup" "$work/base/sbin/dmsetup"
    for library in $(ldd "$dmsetup" | tr ' \t' '\n\n' | grep '^/'); do
        case $library in
        */ld-linux*) cp "$library" "$work/base/lib64" ;;
        *) cp "$library" "$work/base/lib" ;;
        esac
    done
    for module in $MODULES brd; do
        file=$(find "$kernel/modules" -name "$module.ko*" | head -n 1)
        case $file in
        *.xz) xz -dc "$file" ;;
        *.ko) cat "$file" ;;
        *) die "this kernel has no module $module, or it is compressed as no xz: '$file'" ;;
        esac >"$work/base/modules/$module.ko"
    done
    cp "$top/benches/calibrate/guest" "$work/base/init"
    chmod 755 "$work/base/init"
    archive "$work/base" >"$work/base.cpio"
}
archive() { (cd "$1" && find . | "$busybox" cpio -o -H newc 2>/dev/null); }

# boot NAME IMAGE WHAT BLOCKS_MORE: what the guest told is in $work/NAME.told
boot() {
    blocks=$("$tools" thin_dump "$2" | sed -n 's/^<superblock.*nr_data_blocks="\([0-9]*\)".*/\1/p')
    rm -rf "$work/own"
    mkdir "$work/own"
    mv "$2" "$work/own/image"
    echo "WHAT=$3 DATA=$((blocks + $4)) MODULES='$MODULES'" >"$work/own/job"
    archive "$work/own" | cat "$work/base.cpio" - >"$work/initrd"
    # One instruction is a nanosecond, and an idle guest does not wait.
    timeout 1800 qemu-system-x86_64 -accel tcg,thread=single -icount shift=0,sleep=off -cpu max -smp 1 -m 1024 -nic none \
        -no-reboot -display none -monitor none -kernel "$kernel/vmlinuz" -initrd "$work/initrd" \
        -append 'console=ttyS0 panic=-1 quiet random.trust_cpu=on mitigations=off no5lvl' \
        -serial "file:$work/console" -serial "file:$work/told" </dev/null || die "the emulator failed on $1"
    tr -d '\r' <"$work/told" >"$work/$1.told.new"
    tail -n 1 "$work/$1.told.new" | grep -qx end || die "$1: the guest did not come to its end: $work/$1.told.new, $work/console"
    mv "$work/$1.told.new" "$work/$1.told"
    rm -rf "$work/own" "$work/initrd"
}

# made MEBIBYTES OPTIONS: an image, as thin_generate_metadata makes it
made() {
    truncate -s "${1}M" "$work/image"
    shift
    "$tools" thin_generate_metadata -q -o "$work/image" "$@" || die "can't make an image: $*"
}
# turns MAPPINGS BITMAPS RUN: full leaves, and each run of data blocks is in another bitmap than the one before
turns() {
    truncate -s 72M "$work/image"
    awk -v n="$1" -v bitmaps="$2" -v run="$3" 'BEGIN {
        print "<superblock uuid=\"\" time=\"0\" transaction=\"0\" version=\"2\" data_block_size=\"128\" nr_data_blocks=\"" \
            bitmaps * 16320 "\"><device dev_id=\"1\" mapped_blocks=\"" n "\" transaction=\"0\" creation_time=\"0\" snap_time=\"0\">"
        for (i = 0; i * run < n; i++)
            print "<range_mapping origin_begin=\"" i * run "\" data_begin=\"" i % bitmaps * 16320 + int(i / bitmaps) * run \
                "\" length=\"" (i * run + run > n ? n - i * run : run) "\" time=\"0\"/>"
        print "</device></superblock>"
    }' >"$work/xml"
    "$tools" thin_restore -q -i "$work/xml" -o "$work/image" || die "can't restore $*"
    rm "$work/xml"
}

# deleted NAME: times the delete of the image's device 1, unless that was done, and adds a line to the rows of the fit
deleted() {
    name=$1
    counts=$("$tools" thin_replay predict "$work/image" --delete 1 -p offline --json | tr -d ' ,\n"' | sed 's/.*work:\[{\([^}]*\)}.*/\1/')
    [ -e "$work/$name.told" ] || boot "$name" "$work/image" delete 0
    rm -f "$work/image"
    took=$(sed -n 's/^delete dm_pool_delete_thin_device //p' "$work/$name.told")
    [ -n "$took" ] || die "$name: nothing was timed: $work/$name.told"
    row="$mark$name $took"
    for column in $COLUMNS; do row="$row $(echo "$counts" | sed "s/.*[a-z0-9]$column:\([0-9]*\).*/\1/; s/^$column:\([0-9]*\).*/\1/")"; done
    echo "$row" >>"$work/rows"
    echo "$row" >&2
}

mkdir -p "$work"
base
COLUMNS='nodes shared runs entries index overflow settle'
echo "name time $COLUMNS" >"$work/rows"
mark=
while read -r name maker arguments; do
    case $name in
    '') continue ;;
    predicted) mark='?' && continue ;;
    esac
    # shellcheck disable=SC2086 # arguments are words
    "$maker" $arguments
    deleted "$name"
done <<END
in-order-full made 72 --seed 1 --mappings 300000 --run-length 3000
in-order-half made 72 --seed 1 --mappings 300000 --run-length 3000 --leaf-fill 50
in-order-full-1M made 72 --seed 1 --mappings 1000000 --run-length 3000
in-order-half-1M made 72 --seed 1 --mappings 1000000 --run-length 3000 --leaf-fill 50
runs-of-8 made 72 --seed 1 --mappings 300000 --run-length 8
runs-of-3 made 72 --seed 1 --mappings 300000 --run-length 3 --leaf-fill 75
near-full made 72 --seed 1 --mappings 300000 --run-length 1
near-half made 72 --seed 1 --mappings 300000 --run-length 1 --leaf-fill 50
turns-20 turns 300000 20 1
turns-60 turns 300000 60 1
turns-250 turns 300000 250 1
turns-250-runs turns 300000 250 8
changed-20 made 96 --seed 1 --mappings 300000 --run-length 8 --snapshots 1 --change 20
changed-100 made 96 --seed 1 --mappings 300000 --run-length 8 --snapshots 1 --change 100
snapshots-6 made 96 --seed 1 --mappings 300000 --run-length 8 --snapshots 6 --change 100
two-thirds made 120 --seed 2 --mappings 1000000 --run-length 8 --leaf-fill 67
runs-of-2 made 120 --seed 3 --mappings 500000 --run-length 2 --leaf-fill 50-100
turns-130 turns 400000 130 4
turns-90 turns 400000 90 2
snapshots-2 made 120 --seed 5 --mappings 600000 --run-length 5 --leaf-fill 80 --snapshots 2 --change 35
snapshots-4 made 120 --seed 6 --mappings 300000 --run-length 12 --leaf-fill 60 --snapshots 4 --change 60
predicted
turns-300 turns 500000 300 16
turns-100 turns 300000 100 3
runs-of-20 made 150 --seed 14 --mappings 1000000 --run-length 20 --leaf-fill 90
changed-50 made 150 --seed 15 --mappings 500000 --run-length 4 --leaf-fill 50-100 --snapshots 1 --change 50
snapshots-3 made 150 --seed 12 --mappings 400000 --run-length 6 --leaf-fill 70 --snapshots 3 --change 50
snapshots-8 made 150 --seed 16 --mappings 300000 --run-length 8 --snapshots 8 --change 30
END
awk -f benches/calibrate/fit.awk "$work/rows"

if [ ! -e "$work/steps.told" ]; then
    made 72 --seed 1 --mappings 300000 --run-length 1 --leaf-fill 50
    boot steps "$work/image" steps 20000
fi
echo 'steps, in nanoseconds: the mean of each'
awk '$1 !~ /^(each|count|commit|discard|end)/ && NF == 3 { key = $1 " " $2; n[key]++; sum[key] += $3 }
    $1 == "each" { key = $2 " each"; n[key]++; sum[key] += $3 }
    END { for (key in n) printf "  %-50s %10.0f\n", key, sum[key] / n[key] * 1000 }' "$work/steps.told" | sort
echo 'discards of so many mappings: nanoseconds for each'
sed -n 's/^discard-\([0-9]*\) dm_thin_remove_range \(.*\)/\1 \2/p' "$work/steps.told" | awk '{ printf "  %-8s %10.0f\n", $1, $2 / $1 * 1000 }'
echo 'commits: the base, and each block more'
awk '$1 == "commit" { took = $3 } $2 == "commit-written" && $3 > 0 { print "commit", took, 1, $3 }
    BEGIN { print "name time commit write" }' "$work/steps.told" | awk -f benches/calibrate/fit.awk | sed -n 2,3p
