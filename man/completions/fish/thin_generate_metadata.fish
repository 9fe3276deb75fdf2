# Made from the tool registry of dmeta.
complete -c thin_generate_metadata -s o -l output -d 'The device or file to write, which must exist' -r -F
complete -c thin_generate_metadata -l set-needs-check -d 'Only set or clear the flag of the pool that is there' -r -f -a "true\t''
false\t''"
complete -c thin_generate_metadata -l block-size -d 'Sectors of a data block' -r
complete -c thin_generate_metadata -l nr-data-blocks -d 'Blocks of the data device (default: 10240 with --format, else as many as are used)' -r
complete -c thin_generate_metadata -l transaction-id -d 'The transaction id' -r
complete -c thin_generate_metadata -l seed -d 'Another number makes another pool' -r
complete -c thin_generate_metadata -l devices -d 'Devices that are no snapshots' -r
complete -c thin_generate_metadata -l snapshots -d 'Snapshots of each device, one after the other' -r
complete -c thin_generate_metadata -l mappings -d 'Mappings of each device' -r
complete -c thin_generate_metadata -l run-length -d 'How many mappings continue each other, on average' -r
complete -c thin_generate_metadata -l leaf-fill -d 'How full leaves are: a number, or two, as in 50-90' -r
complete -c thin_generate_metadata -l change -d 'How many leaves are overwritten in part after a snapshot' -r
complete -c thin_generate_metadata -l exit-codes -d 'Exit with 0 or 1 (plain), or as fsck does' -r -f -a "plain\t''
fsck\t''"
complete -c thin_generate_metadata -s q -l quiet -d 'Print nothing on either stream; only the exit status speaks'
complete -c thin_generate_metadata -l format -d 'Write a pool without devices'
complete -c thin_generate_metadata -l metadata-snapshot -d 'Hold a metadata snapshot, and change every device after it'
complete -c thin_generate_metadata -l needs-check -d 'Set the flag needs_check'
complete -c thin_generate_metadata -s h -l help -d 'Print this help'
complete -c thin_generate_metadata -s V -l version -d 'Print the version'
