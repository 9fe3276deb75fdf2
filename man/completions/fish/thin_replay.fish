# Made from the tool registry of dmeta.
complete -c thin_replay -l costs -d 'Use this cost profile, by name or from a file' -r
complete -c thin_replay -l lock -d 'What a lock\'s release does with those who wait' -r -f -a "rwsem-2016\t''
rwsem-handoff\t''
fifo\t''
barge\t''"
complete -c thin_replay -l scale -d 'Make images N times smaller' -r
complete -c thin_replay -l leaf-fill -d 'How full the leaves of made images are' -r
complete -c thin_replay -l kappa -d 'A turn of the resync in normal requests' -r
complete -c thin_replay -l threads -d 'Use N threads instead of one for each processor; the output is the same' -r
complete -c thin_replay -s q -l quiet -d 'Print nothing on either stream; only the exit status speaks'
complete -c thin_replay -l json -d 'Print the result as JSON'
complete -c thin_replay -s h -l help -d 'Print this help'
complete -c thin_replay -s V -l version -d 'Print the version'
