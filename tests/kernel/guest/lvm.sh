# LVM with the tools: snapshots, activation with thin_check, an offline deletion, damage, lvconvert --repair, and pools
# that ask for a check.

mkdir -p /etc/lvm /run/lvm /run/lock/lvm
cat >/etc/lvm/lvm.conf <<'END'
devices { dir="/dev" scan=["/dev"] use_devicesfile=0 obtain_device_list_from_udev=0 external_device_info_source="none" filter=["a|/dev/vd|","r|.*|"] }
activation { udev_sync=0 udev_rules=0 verify_udev_operations=1 monitoring=0 }
backup { backup=0 archive=0 }
global { thin_check_executable="/tools/thin_check" thin_repair_executable="/tools/thin_repair" thin_dump_executable="/tools/thin_dump" thin_check_options=["-q","--clear-needs-check-flag"] use_lvmpolld=0 event_activation=0 }
END
export LVM_SUPPRESS_FD_WARNINGS=1
sum() { md5sum <"/dev/mapper/vg-$1" | cut -c 1-32; }
# The pool's metadata and the volume "spare" change places.
swap() { must lvm lvconvert -y --thinpool vg/pool --poolmetadata vg/spare; }

must lvm pvcreate -ff -y /dev/vda
must lvm vgcreate vg /dev/vda
must lvm lvcreate -y -T -L 64M --poolmetadatasize 8M -Zn vg/pool -Wn
must lvm lvcreate -y -V 128M -T vg/pool -n origin -Wn
for number in $(seq 1 200); do
    dd if=/dev/urandom of=/dev/mapper/vg-origin bs=64k count=4 seek=$((number * 10)) conv=notrunc 2>/dev/null
    sync
    # Only the last one is activated with the others.
    skip=y
    [ "$number" = 200 ] && skip=n
    must lvm lvcreate -y -s -n "s$number" vg/origin "-k$skip" >/dev/null
done
tell "step snapshots made"
before=$(sum s200)
must lvm vgchange -an vg
must lvm vgchange -ay vg
tell "step activated with thin_check"
must lvm vgchange -an vg

# Snapshots 1 to 180 have the ids 2 to 181.
must lvm lvcreate -y -an -Zn -Wn -L 8M -n spare vg
swap
must lvm lvchange -ay vg/spare
must thin_delete -q --dev-id 2-181 /dev/mapper/vg-spare
must thin_check -q /dev/mapper/vg-spare
tell "step deleted"
must lvm lvchange -an vg/spare
swap
must lvm vgcfgbackup -f /tmp/now vg
awk '/^\t\t[a-z0-9_]+ \{/ { gone = $1 ~ /^s[0-9]+$/ && substr($1, 2) + 0 <= 180 } !gone { print } gone && /^\t\t\}/ { gone = 0 }' \
    /tmp/now >/tmp/edited
must lvm vgcfgrestore --force -f /tmp/edited vg
must lvm vgchange -ay vg
tell "step activated without the deleted"
[ "$(sum s200)" = "$before" ] || must false
tell "step the survivors read as before"
must lvm lvcreate -y -s -n late vg/origin -kn
must lvm lvremove -y vg/s199
tell "step a new snapshot, and one removed"
before=$(sum s200)
must lvm vgchange -an vg

# A bitmap of the data space map goes bad.
must lvm lvremove -y vg/spare
must lvm lvcreate -y -an -Zn -Wn -L 8M -n spare vg
swap
must lvm lvchange -ay vg/spare

must thin_generate_damage --kind noise --target data-bitmap --seed 1 -o /dev/mapper/vg-spare
must lvm lvchange -an vg/spare
swap
lvm lvchange -ay vg/s200 && must false
tell "step refused with damage"
lvm vgchange -an vg
must lvm lvconvert -y --repair vg/pool
tell "step repaired"
must lvm lvchange -ay vg/s200
[ "$(sum s200)" = "$before" ] || must false
tell "step activated after the repair"
must lvm vgchange -an vg

# The pool asks for a check. LVM has it made, and the flag cleared, before it activates; without a check the kernel makes the
# pool read-only, and no snapshot can be made.
ask_for_check() {
    must lvm lvcreate -y -an -Zn -Wn -L 8M -n asking vg
    must lvm lvconvert -y --thinpool vg/pool --poolmetadata vg/asking
    must lvm lvchange -ay vg/asking
    must thin_generate_metadata --set-needs-check=true -o /dev/mapper/vg-asking
    must lvm lvchange -an vg/asking
    must lvm lvconvert -y --thinpool vg/pool --poolmetadata vg/asking
    must lvm lvremove -y vg/asking
}
# asks: the kernel says that the active pool has to be checked.
asks() { dmsetup status vg-pool-tpool | grep -q needs_check; }
unchecked='global { thin_check_executable="" }'

ask_for_check
must lvm lvchange --config "$unchecked" -ay vg/s200
asks || must false
lvm lvcreate --config "$unchecked" -y -s -n refused vg/origin -kn && must false
tell "step read-only while a check is asked for"
must lvm vgchange --config "$unchecked" -an vg
must lvm lvchange -ay vg/s200
asks && must false
must lvm lvcreate -y -s -n cleared vg/origin -kn
[ "$(sum s200)" = "$before" ] || must false
tell "step cleared by the check of the activation"
must lvm vgchange -an vg

ask_for_check
must lvm lvconvert -y --repair vg/pool
must lvm lvchange --config "$unchecked" -ay vg/s200
asks && must false
must lvm lvcreate --config "$unchecked" -y -s -n repaired vg/origin -kn
[ "$(sum s200)" = "$before" ] || must false
tell "step cleared by the repair"
must lvm vgchange --config "$unchecked" -an vg
