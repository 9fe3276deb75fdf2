# Made from the tool registry of dmeta.
complete -c thin_restore -s i -l input -d 'XML, plain or compressed (gzip, xz, zstd); - is standard input' -r -F
complete -c thin_restore -s o -l output -d 'The device or file to write, which must exist; all of it is overwritten' -r -F
complete -c thin_restore -l transaction-id -d 'Write this transaction id' -r
complete -c thin_restore -l data-block-size -d 'Write this size of data blocks' -r
complete -c thin_restore -l nr-data-blocks -d 'Write this number of data blocks' -r
complete -c thin_restore -l exit-codes -d 'Exit with 0 or 1 (plain), or as fsck does' -r -f -a "plain\t''
fsck\t''"
complete -c thin_restore -s q -l quiet -d 'Print nothing on either stream; only the exit status speaks'
complete -c thin_restore -l lenient -d 'Ignore unknown attributes, and text between elements'
complete -c thin_restore -s h -l help -d 'Print this help'
complete -c thin_restore -s V -l version -d 'Print the version'
