# Made from the tool registry of dmeta.
complete -c thin_check -s m -l metadata-snap -d 'Read the metadata snapshot of a live pool; BLOCK, if given, must be where it is' -r
complete -c thin_check -l override-mapping-root -d 'Use this root of the mapping tree' -r
complete -c thin_check -l override-details-root -d 'Use this root of the details tree' -r
complete -c thin_check -l undo -d 'Before mending, save what will be overwritten to this new file' -r -F
complete -c thin_check -l threads -d 'Use N threads instead of one for each processor; the output is the same' -r
complete -c thin_check -l exit-codes -d 'Exit with 0 or 1 (plain), or as fsck does' -r -f -a "plain\t''
fsck\t''"
complete -c thin_check -s q -l quiet -d 'Print nothing on either stream; only the exit status speaks'
complete -c thin_check -l super-block-only -d 'Check only the superblock'
complete -c thin_check -l skip-mappings -d 'Check only the devices\' details and the top of the mapping tree'
complete -c thin_check -l ignore-non-fatal-errors -d 'Let leaks and the like pass'
complete -c thin_check -l clear-needs-check-flag -d 'After a clean check, mend leaks and clear the flag that asks for a check'
complete -c thin_check -l auto-repair -d 'Mend leaks and clear the flag that asks for a check'
complete -c thin_check -l repair-space-maps -d 'Count all references anew and rebuild both space maps, if the trees are sound'
complete -c thin_check -l json -d 'Print the report as JSON on standard output'
complete -c thin_check -s h -l help -d 'Print this help'
complete -c thin_check -s V -l version -d 'Print the version'
