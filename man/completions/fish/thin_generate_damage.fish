# Made from the tool registry of dmeta.
complete -c thin_generate_damage -s o -l output -d 'The device or file to damage' -r -F
complete -c thin_generate_damage -l expected -d 'Pick blocks with this count' -r
complete -c thin_generate_damage -l actual -d 'Store this count for them' -r
complete -c thin_generate_damage -l nr-blocks -d 'How many blocks' -r
complete -c thin_generate_damage -l mapping-root -d 'This root of the upper mapping tree' -r
complete -c thin_generate_damage -l details-root -d 'This root of the details tree' -r
complete -c thin_generate_damage -l metadata-snap -d 'This block of the metadata snapshot' -r
complete -c thin_generate_damage -l kind -d 'What happens to blocks' -r -f -a "bit-rot\t''
torn\t''
zeroed\t''
noise\t''
swapped\t''
stale\t''
cycle\t''
huge-count\t''
wild-pointer\t''
key-order\t''
wrong-count\t''"
complete -c thin_generate_damage -l target -d 'Which blocks it happens to (default: any)' -r -f -a "any\t''
superblock\t''
snapshot-superblock\t''
top-level\t''
details\t''
mapping-leaf\t''
mapping-node\t''
data-bitmap\t''
data-index\t''
data-counts\t''
metadata-bitmap\t''
metadata-index\t''
metadata-counts\t''"
complete -c thin_generate_damage -l block -d 'It happens to this block' -r
complete -c thin_generate_damage -l count -d 'How many blocks it happens to (default: 1)' -r
complete -c thin_generate_damage -l seed -d 'Another number picks other blocks' -r
complete -c thin_generate_damage -l exit-codes -d 'Exit with 0 or 1 (plain), or as fsck does' -r -f -a "plain\t''
fsck\t''"
complete -c thin_generate_damage -s q -l quiet -d 'Print nothing on either stream; only the exit status speaks'
complete -c thin_generate_damage -l create-metadata-leaks -d 'Store other counts for some metadata blocks'
complete -c thin_generate_damage -l override -d 'Write other roots into the superblock'
complete -c thin_generate_damage -l reseal -d 'Make checksums and block numbers good again'
complete -c thin_generate_damage -s h -l help -d 'Print this help'
complete -c thin_generate_damage -s V -l version -d 'Print the version'
