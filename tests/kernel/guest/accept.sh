# Does the kernel take this metadata, and can it go on with it? For each pool of /scenario/pools, a line
#   NAME METADATA_DEVICE DATA_DEVICE BLOCK_SECTORS DATA_BLOCKS DEVICES
# (a "-" for a data device that keeps nothing; devices as ID:MAPPED_SECTORS):
# activates the pool and every device, holds their figures against those given, reads them, compares what they read with
# /scenario/NAME.ID if that is there, snapshots, writes, discards, deletes, commits, opens all again.

NEW=16000000

# devices LIST: they come up, have as many mapped sectors as the list says, and can be read where they are mapped. Leaves
# the last that has mappings in $busy. (One process for all of them: a process costs a lot in an emulated machine.)
devices() {
    local word table= id last
    for word in $1; do table="$table;thin${word%:*},,,rw,0 1099511627776 thin /dev/mapper/pool ${word%:*}"; done
    [ -z "$table" ] || must dmsetup create --concise "${table#;}"
    dmsetup status --target thin >/tmp/status
    while read -r name _ _ _ mapped highest; do
        id=${name#thin} id=${id%:}
        case " $1 " in
        *" $id:$mapped "*) ;;
        *) fail "$NAME: thin $id has $mapped mapped sectors, and should have one of $1" ;;
        esac
        last=0
        if [ "$mapped" != 0 ]; then last=$((highest / BLOCK)) busy=$id; fi
        if [ -e "/scenario/$NAME.$id" ]; then
            stamps "$id" "0+$((last + 1))" >/tmp/stamps
            cmp /tmp/stamps "/scenario/$NAME.$id" || fail "$NAME: thin $id reads other data"
            tell "read $NAME $id"
        else
            stamps "$id" "0+10,$((last / 2))+10,$((last > 9 ? last - 9 : 0))+10,0+50/$((last / 50 + 1))" >/tmp/stamps
        fi
    done </tmp/status
    set -- $1
    [ $# = "$(wc -l </tmp/status)" ] || fail "$NAME: not all of $* are there"
}

# change ID: what a pool in use goes through, on the last device that has mappings.
change() {
    local id=$1 last
    must message create_thin $NEW
    must thin_up $NEW 1048576
    write $NEW 1 0+60/2 7
    if [ -n "$id" ]; then
        must snapshot $((NEW + 1)) "$id"
        set -- $(dmsetup status "thin$id")
        last=$(($5 / BLOCK))
        write "$id" 2 "0+40/$((last / 40 + 1))" 8
        for block in 0 $((last / 2)) $last; do discard "$id" $block 1; done
        must thin_up $((NEW + 1))
        stamps $((NEW + 1)) 0+64 >/tmp/stamps
        write $((NEW + 1)) 3 "$last+3"
        must thin_down "$id"
        must thin_down $((NEW + 1))
        must message delete "$id"
    fi
    must thin_down $NEW
    must message delete $NEW
}

accept() {
    local busy= id
    must pool_up
    pool_is_well
    devices "$1"
    # A full data device takes no writes.
    if [ "$FULL" = 1 ]; then
        for id in $busy; do must thin_down "$id"; must message delete "$id"; done
    else
        change "$busy"
    fi
    pool_is_well
    pool_down
    must pool_up
    pool_is_well
    # There is one already in some.
    message reserve_metadata_snap || must message release_metadata_snap
    [ "$(dmsetup status pool | cut -d ' ' -f 7)" != - ] || must message reserve_metadata_snap
    must message release_metadata_snap
    pool_down
}

while read -r NAME META data BLOCK blocks list; do
    DATA=$data
    FULL=
    [ "$data" != - ] || DATA=/dev/mapper/nothing
    case $NAME in *data-full*) FULL=1 ;; esac
    POOL=$((BLOCK * blocks))
    accept "$list"
    [ "$data" != - ] || must dmsetup remove nothing
    tell "accepted $NAME"
done </scenario/pools
