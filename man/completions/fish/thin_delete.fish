# Made from the tool registry of dmeta.
complete -c thin_delete -l dev-id -d 'Delete these devices: ids and ranges, as in 1,5,10-20; repeatable' -r
complete -c thin_delete -l keep -d 'Delete all devices but these; repeatable' -r
complete -c thin_delete -l from -d 'Delete the devices that FILE lists: ids and ranges, and comments after #' -r -F
complete -c thin_delete -s o -l output -d 'Write the pool without the devices to another device or file, which must exist' -r -F
complete -c thin_delete -l freed-ranges -d 'Write the ranges of the data device that became free to FILE' -r -F
complete -c thin_delete -l strategy -d 'How the new reference counts are found' -r -f -a "auto\t''
drop\t''
recount\t''"
complete -c thin_delete -l transaction-id -d 'Write this transaction id' -r
complete -c thin_delete -l undo -d 'Before anything is changed, save what will be overwritten to this new file' -r -F
complete -c thin_delete -l threads -d 'Use N threads instead of one for each processor; the output is the same' -r
complete -c thin_delete -l exit-codes -d 'Exit with 0 or 1 (plain), or as fsck does' -r -f -a "plain\t''
fsck\t''"
complete -c thin_delete -s q -l quiet -d 'Print nothing on either stream; only the exit status speaks'
complete -c thin_delete -l ignore-missing -d 'Pass over ids that no device has'
complete -c thin_delete -l dry-run -d 'Only tell what would come back, for each device and for all of them'
complete -c thin_delete -l json -d 'Give the account of --dry-run, and the ranges of --freed-ranges, as JSON'
complete -c thin_delete -l no-check -d 'Do not check the metadata first'
complete -c thin_delete -l allow-damaged -d 'Delete damaged devices too, as long as all others are sound; both space maps are counted anew'
complete -c thin_delete -l quick-check -d 'Check first only the superblock and the devices, without their mappings'
complete -c thin_delete -s h -l help -d 'Print this help'
complete -c thin_delete -s V -l version -d 'Print the version'
