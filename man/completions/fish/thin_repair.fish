# Made from the tool registry of dmeta.
complete -c thin_repair -s i -l input -d 'The damaged metadata: a device, an image or a packed image; only read' -r -F
complete -c thin_repair -s o -l output -d 'The device or file to write, which must exist; all of it is overwritten' -r -F
complete -c thin_repair -l backup -d 'The new file for a copy of the damaged metadata' -r -F
complete -c thin_repair -l root -d 'Take these roots instead of those in the superblock' -r
complete -c thin_repair -l transaction-id -d 'Write this transaction id' -r
complete -c thin_repair -l data-block-size -d 'Write this size of data blocks' -r
complete -c thin_repair -l nr-data-blocks -d 'Write this number of data blocks' -r
complete -c thin_repair -l threads -d 'Use N threads instead of one for each processor; the output is the same' -r
complete -c thin_repair -l exit-codes -d 'Exit with 0 or 1 (plain), or as fsck does' -r -f -a "plain\t''
fsck\t''"
complete -c thin_repair -l in-place -d 'Repair the input itself, after saving all of it with --backup'
complete -c thin_repair -s q -l quiet -d 'Print nothing on either stream; only the exit status speaks'
complete -c thin_repair -l list-roots -d 'Only list the pairs of roots that the metadata may have had, the best first'
complete -c thin_repair -l fail-on-loss -d 'Fail where anything is lost, although all else was written'
complete -c thin_repair -l json -d 'Print the account, or the list of roots, as JSON on standard output'
complete -c thin_repair -s h -l help -d 'Print this help'
complete -c thin_repair -s V -l version -d 'Print the version'
