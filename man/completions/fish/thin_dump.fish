# Made from the tool registry of dmeta.
complete -c thin_dump -s o -l output -d 'Write to FILE instead of standard output' -r -F
complete -c thin_dump -s f -l format -d 'The form of the output' -r -f -a "xml\t''
human_readable\t''
json\t''"
complete -c thin_dump -s m -l metadata-snap -d 'Read the metadata snapshot of a live pool; BLOCK, if given, must be where it is' -r
complete -c thin_dump -l dev-id -d 'Write only these devices: ids and ranges, as in 1,5,10-20; repeatable' -r
complete -c thin_dump -l transaction-id -d 'Write this transaction id' -r
complete -c thin_dump -l data-block-size -d 'Write this size of data blocks' -r
complete -c thin_dump -l nr-data-blocks -d 'Write this number of data blocks' -r
complete -c thin_dump -l threads -d 'Use N threads instead of one for each processor; the output is the same' -r
complete -c thin_dump -l exit-codes -d 'Exit with 0 or 1 (plain), or as fsck does' -r -f -a "plain\t''
fsck\t''"
complete -c thin_dump -s q -l quiet -d 'Say nothing on standard error'
complete -c thin_dump -s r -l repair -d 'Read what can be read of damaged metadata'
complete -c thin_dump -l skip-mappings -d 'Write the devices without their mappings'
complete -c thin_dump -l flat -d 'Repeat shared mappings for every device instead of referring to them'
complete -c thin_dump -s h -l help -d 'Print this help'
complete -c thin_dump -s V -l version -d 'Print the version'
