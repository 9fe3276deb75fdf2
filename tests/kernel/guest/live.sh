# What the tools say of a pool that is in use, and of one that was in use a moment ago. SEED picks another workload.

# The numbers of a linear congruential generator: $drawn is one below $1.
state=$SEED
draw() {
    state=$(((state * 1103515245 + 12345) & 2147483647))
    drawn=$(((state >> 8) % $1))
}
# pick: $picked is one of the devices in $ids.
pick() {
    set -- $ids
    draw $#
    shift "$drawn"
    picked=$1
}

# What a pool goes through: $1 operations.
work() {
    local left=$1 begin
    while [ "$left" -gt 0 ]; do
        left=$((left - 1))
        pick
        draw 12
        case $drawn in
        0 | 1) must snapshot "$new" "$picked" && must thin_up "$new" && ids="$ids $new" new=$((new + 1)) ;;
        2) must message create_thin "$new" && must thin_up "$new" && ids="$ids $new" new=$((new + 1)) ;;
        3)
            if [ "$picked" -gt 2 ]; then
                must thin_down "$picked"
                must message delete "$picked"
                ids=$(echo " $ids " | sed "s/ $picked / /")
            fi
            ;;
        4 | 5)
            draw 900
            discard "$picked" "$drawn" 25
            ;;
        *)
            draw 900
            begin=$drawn
            draw 60
            write "$picked" "$left" "$begin+$((drawn + 1))/2" "$left"
            ;;
        esac
    done
    draw 1000
    must message set_transaction_id "$(dmsetup status pool | cut -d ' ' -f 4)" "$drawn"
}

# figures: what the kernel says now, of the pool and of each device.
figures() {
    pool_says
    dmsetup status --target thin | while read -r name _ _ _ mapped highest; do
        tell "thin ${name#thin} mapped=$mapped highest=$highest"
    done
}

# snapshot_says: takes a metadata snapshot, and tells the kernel's figures and ours.
snapshot_says() {
    must message reserve_metadata_snap
    figures
    must thin_check -m -q "$META"
    must thin_dump -m --flat "$META" >/tmp/dump
    awk -F '"' '/<device/ { id = $2; n[id] = 0; said[id] = $4 } /<range/ { n[id] += $6 } /<single/ { n[id]++ }
        END { for (id in n) print "dumped", id ": " n[id], said[id] }' /tmp/dump >/dev/ttyS1
    must message release_metadata_snap
    tell round
}

# in_use: nothing but a metadata snapshot may be read now, and nothing written.
in_use() {
    refused thin_check "$META"
    grep -q 'in use' /tmp/said || fail "of a device in use: $(cat /tmp/said)"
    for line in "thin_dump $META" "thin_check --auto-repair $META" "thin_delete --dev-id 0 $META" \
        "thin_restore -i /tmp/dump -o $META" "thin_repair -i $META -o /dev/vdb" "thin_repair -i /dev/vdb -o $META"; do
        refused $line
    done
    refused thin_check -m "$META"
}

must pool_up
ids='0 1 2' new=3
for id in $ids; do
    must message create_thin "$id"
    must thin_up "$id"
    write "$id" "$id" 0+300/3 "$id"
done
# A reader keeps the page cache of the device alive; the kernel does not write through it.
exec 9<"$META"
cat "$META" >/dev/null
in_use
for round in 1 2 3; do
    work 12
    snapshot_says
    cat "$META" >/dev/null
done
# And while it is written to.
must message reserve_metadata_snap
(for round in 1 2 3 4 5 6; do write 0 9 "0+400/2" $round; done) &
writer=$!
for round in 1 2 3; do
    must thin_check -m -q "$META"
    must thin_dump -m "$META" >/dev/null
done
must wait $writer
must message release_metadata_snap
exec 9<&-

tell rest
pool_down
must thin_check -q "$META"
must pool_up
for id in $ids; do must thin_up "$id"; done
figures
pool_down
must thin_check -q "$META"
