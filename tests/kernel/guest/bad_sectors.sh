# Sectors that cannot be read, or not written, below the metadata on META. For each block of BLOCKS: reads of it fail; every
# tool has to end with a status of 0 or 1. "read BLOCK TOOL STATUS" tells it. Then writes fail.

SECTORS=$(blockdev --getsz "$META")

# bad BLOCK: the device "bad" is the metadata, of which this block gives errors.
bad() {
    local begin=$(($1 * 8)) end=$(($1 * 8 + 8))
    {
        [ $begin = 0 ] || echo "0 $begin linear $META 0"
        echo "$begin 8 error"
        echo "$end $((SECTORS - end)) linear $META $end"
    } >/tmp/table
    must dmsetup create bad </tmp/table
}
# try NAME COMMAND
try() {
    local name=$1
    shift
    "$@" >/tmp/out 2>&1
    local status=$?
    grep -q 'internal error\|panicked' /tmp/out && fail "$*: $(cat /tmp/out)"
    tell "$name $status"
    [ $status = 0 ] || [ -s /tmp/out ] || fail "$* says nothing"
}

for block in $BLOCKS; do
    bad "$block"
    try "read $block thin_check" thin_check /dev/mapper/bad
    try "read $block thin_dump" thin_dump /dev/mapper/bad
    try "read $block thin_repair" thin_repair -i /dev/mapper/bad -o /dev/vdb
    try "read $block thin_metadata_pack" thin_metadata_pack -f -i /dev/mapper/bad -o /tmp/pack
    try "read $block thin_delete" thin_delete --dev-id "$DEVICE" /dev/mapper/bad
    must dmsetup remove bad
    tell "check $block $(thin_check -q "$META"; echo $?)"
done

# All writes fail.
must dmsetup create bad --table "0 $SECTORS flakey $META 0 0 60 1 error_writes"
try "write all thin_delete" thin_delete --dev-id "$LAST" /dev/mapper/bad
try "write all thin_restore" thin_restore -i /scenario/xml -o /dev/mapper/bad
must dmsetup remove bad
tell "check all $(thin_check -q "$META"; echo $?)"

# A device that gives nothing at all.
must dmsetup create bad --table "0 $SECTORS error"
for tool in thin_check thin_dump; do try "read none $tool" $tool /dev/mapper/bad; done
must dmsetup remove bad

# One that may not be written.
must blockdev --setro "$META"
must thin_check -q --clear-needs-check-flag "$META"
try "write readonly thin_delete" thin_delete --dev-id "$LAST" "$META"
try "write readonly thin_restore" thin_restore -i /scenario/xml -o "$META"
