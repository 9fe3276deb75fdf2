# Works until the machine is killed. WHAT is what it does; each step that was done is told.

case $WHAT in
delete)
    armed
    for id in $IDS; do
        must thin_delete -q --dev-id "$id" "$META"
        tell "done $id"
    done
    ;;
auto-repair)
    armed
    for disk in $DISKS; do
        must thin_check -q --auto-repair "$disk"
        tell "done $disk"
    done
    ;;
restore)
    armed
    while :; do
        for name in old new; do
            must thin_restore -q -i "/scenario/$name" -o "$META"
            tell "done $name"
        done
    done
    ;;
esac
# Whoever was quick enough is killed here.
sleep 1000
