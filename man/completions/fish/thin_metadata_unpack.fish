# Made from the tool registry of dmeta.
complete -c thin_metadata_unpack -s i -l input -d 'The packed image; - is standard input' -r -F
complete -c thin_metadata_unpack -s o -l output -d 'The file to make, or a device that is large enough' -r -F
complete -c thin_metadata_unpack -l threads -d 'Use N threads instead of one for each processor; the output is the same' -r
complete -c thin_metadata_unpack -l exit-codes -d 'Exit with 0 or 1 (plain), or as fsck does' -r -f -a "plain\t''
fsck\t''"
complete -c thin_metadata_unpack -l check -d 'Only verify the packed image; write nothing'
complete -c thin_metadata_unpack -s f -l force -d 'Overwrite a file that holds metadata without asking'
complete -c thin_metadata_unpack -s q -l quiet -d 'Print nothing on either stream; only the exit status speaks'
complete -c thin_metadata_unpack -s h -l help -d 'Print this help'
complete -c thin_metadata_unpack -s V -l version -d 'Print the version'
