# What the scenarios have in common. A pool is called "pool"; its device 5 is /dev/mapper/thin5.
#
# Variables: META is the metadata device, DATA the data device, BLOCK the size of a data block and POOL of the pool, both
# in sectors.

META=${META:-/dev/vda}
DATA=${DATA:-/dev/mapper/nothing}
BLOCK=${BLOCK:-128}
FEATURES=${FEATURES:-3 skip_block_zeroing no_discard_passdown error_if_no_space}

# tell WORDS: a line that the test gets.
tell() { echo "$*" >/dev/ttyS1; }
# fail WORDS: what went wrong, and the end of the scenario.
fail() {
    tell "failed: $*"
    exit 1
}
# must COMMAND: it succeeds, or the scenario ends.
must() { "$@" || fail "$*"; }
# refused COMMAND: it has to fail with status 1, and to say why; what it said is in /tmp/said.
refused() {
    "$@" >/tmp/said 2>&1
    local status=$?
    [ $status = 1 ] || fail "status $status, not 1: $*: $(head -n 5 /tmp/said)"
}
# armed: from here on the machine may be killed.
armed() { tell armed; }

# nothing SECTORS: an endless device that keeps nothing, for pools whose data does not matter.
nothing() { [ -e /dev/mapper/nothing ] || must dmsetup create nothing --table "0 $1 zero"; }
pool_table() { echo "0 $POOL thin-pool $META $DATA $BLOCK 0 $FEATURES"; }
pool_up() {
    [ "$DATA" != /dev/mapper/nothing ] || nothing "$POOL"
    dmsetup create pool --table "$(pool_table)"
}
pool_down() {
    local names
    names=$(dmsetup ls --target thin | sed -n 's/\t.*//p')
    must dmsetup remove $names pool
}
message() { dmsetup message pool 0 "$*"; }
thin_up() { dmsetup create "thin$1" --table "0 ${2:-1099511627776} thin /dev/mapper/pool $1"; }
thin_down() { dmsetup remove "thin$1"; }
thin_is_up() { [ -e "/dev/mapper/thin$1" ]; }
# snapshot NEW OF
snapshot() {
    if thin_is_up "$2"; then
        must dmsetup suspend "thin$2"
        message create_snap "$1" "$2"
        local status=$?
        must dmsetup resume "thin$2"
        return $status
    fi
    message create_snap "$1" "$2"
}
# write ID TAG RANGES [SEED], and read ID RANGES: see blocks.rs
write() { must blocks write "/dev/mapper/thin$1" $((BLOCK * 512)) "$2" "$3" $4; }
stamps() { must blocks read "/dev/mapper/thin$1" $((BLOCK * 512)) "$2"; }
# discard ID BEGIN COUNT, in blocks
discard() { must blkdiscard -o $(($2 * BLOCK * 512)) -l $(($3 * BLOCK * 512)) "/dev/mapper/thin$1"; }

# pool_says: what the kernel tells of the pool, as "pool KEY=VALUE ...".
pool_says() {
    set -- $(dmsetup status pool)
    [ "$4" != Fail ] || { tell "pool mode=Fail"; return; }
    tell "pool transaction_id=$4 metadata_used=${5%/*} metadata_total=${5#*/} data_used=${6%/*} data_total=${6#*/} held_root=$7 mode=$8 needs_check=${11}"
}
# pool_is_well: it can be written to, and asks for no check.
pool_is_well() {
    set -- $(dmsetup status pool)
    case "$8 ${11}" in
    "rw -" | "out_of_data_space -") ;;
    *) fail "$NAME: the pool is $*" ;;
    esac
}
# thin_says ID: mapped sectors and the highest of them, or "refused".
thin_says() {
    local was_up=
    ! thin_is_up "$1" || was_up=1
    if [ -z "$was_up" ] && ! thin_up "$1"; then
        tell "thin $1 refused"
        return
    fi
    local id=$1
    set -- $(dmsetup status "thin$id")
    tell "thin $id mapped=$4 highest=${5:--}"
    [ -n "$was_up" ] || must thin_down "$id"
}
