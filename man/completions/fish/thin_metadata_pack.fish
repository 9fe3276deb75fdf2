# Made from the tool registry of dmeta.
complete -c thin_metadata_pack -s i -l input -d 'The metadata of a thin pool, a cache or an era device' -r -F
complete -c thin_metadata_pack -s o -l output -d 'The file to make; - is standard output' -r -F
complete -c thin_metadata_pack -s m -l metadata-snap -d 'Read the metadata snapshot of a live pool; BLOCK, if given, must be where it is' -r
complete -c thin_metadata_pack -l threads -d 'Use N threads instead of one for each processor; the output is the same' -r
complete -c thin_metadata_pack -l exit-codes -d 'Exit with 0 or 1 (plain), or as fsck does' -r -f -a "plain\t''
fsck\t''"
complete -c thin_metadata_pack -s f -l force -d 'Overwrite a file that holds metadata without asking'
complete -c thin_metadata_pack -s q -l quiet -d 'Print nothing on either stream; only the exit status speaks'
complete -c thin_metadata_pack -s h -l help -d 'Print this help'
complete -c thin_metadata_pack -s V -l version -d 'Print the version'
