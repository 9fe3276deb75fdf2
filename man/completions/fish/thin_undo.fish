# Made from the tool registry of dmeta.
complete -c thin_undo -l exit-codes -d 'Exit with 0 or 1 (plain), or as fsck does' -r -f -a "plain\t''
fsck\t''"
complete -c thin_undo -s q -l quiet -d 'Print nothing on either stream; only the exit status speaks'
complete -c thin_undo -s h -l help -d 'Print this help'
complete -c thin_undo -s V -l version -d 'Print the version'
