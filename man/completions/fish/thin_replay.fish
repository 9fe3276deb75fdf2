# Made from the tool registry of dmeta.
complete -c thin_replay -s o -l output -d 'Write to FILE instead of standard output' -r -F
complete -c thin_replay -s t -l trace -d 'What to replay: a trace, an I/O log of fio, text of blkparse, or a log of pool messages' -r -F
complete -c thin_replay -l side -d 'A second trace, or a log of pool messages, merged by time' -r -F
complete -c thin_replay -s p -l policy -d 'How deletes go about it, as in \'batch(16)+sleep(1ms)\'; repeatable' -r
complete -c thin_replay -l lock -d 'What a lock\'s release does with those who wait' -r -f -a "rwsem-2016\t''
rwsem-handoff\t''
fifo\t''
barge\t''
all\t''"
complete -c thin_replay -l costs -d 'Use this cost profile, by name or from a file' -r
complete -c thin_replay -l split -d 'What becomes of full nodes' -r -f -a "half\t''
share\t''"
complete -c thin_replay -l allocation -d 'Where data blocks come from: cursor, goal, thread, shared, aligned(N)' -r
complete -c thin_replay -l buffer-locks -d 'Get metadata buffers under so many locks: 1 as Linux up to 6.3, more as later; 0 is none' -r
complete -c thin_replay -l cache -d 'What is kept in memory of the metadata, as in \'cap(256KiB)+age(300s)\'; without it all of it is' -r
complete -c thin_replay -l stripe -d 'Count how new blocks fall on a RAID6 of so many data disks and chunks' -r
complete -c thin_replay -l svg -d 'Write a timeline' -r -F
complete -c thin_replay -l zoom -d 'The seconds that the timeline shows' -r
complete -c thin_replay -l save-overlay -d 'Write the metadata after the first policy\'s run to a new file' -r -F
complete -c thin_replay -l crash-at -d 'Stop right after the N-th commit, as a crash would, and say what is leaked' -r
complete -c thin_replay -l clock -d 'Run on a virtual clock, or on threads' -r -f -a "virtual\t''
real\t''"
complete -c thin_replay -l map -d 'Where a recorded file or device went, as in 253,4:6, or - to leave it out; repeatable' -r
complete -c thin_replay -l depth -d 'Requests at once, where a recording has no times' -r
complete -c thin_replay -l iolog-unit -d 'The unit of times and waits in an I/O log, if it is not to be guessed' -r -f -a "us\t''
ms\t''"
complete -c thin_replay -l action -d 'The events of a block trace that count; A: of the devices above' -r -f -a "Q\t''
D\t''
I\t''
A\t''"
complete -c thin_replay -l delete -d 'Predict the deletes of these devices: 1,5,10-20; repeatable' -r
complete -c thin_replay -l scale -d 'Make images N times smaller (default: 16; 64 for a sweep)' -r
complete -c thin_replay -l leaf-fill -d 'How full the leaves of made images are' -r
complete -c thin_replay -l kappa -d 'A turn of the resync in normal requests: 0.1 to 1000' -r
complete -c thin_replay -l seed -d 'Another number makes another trace' -r
complete -c thin_replay -l requests -d 'Requests of a made trace' -r
complete -c thin_replay -l block-size -d 'Sectors of a data block, for a made trace' -r
complete -c thin_replay -l threads -d 'Use N threads instead of one for each processor; the output is the same' -r
complete -c thin_replay -l exit-codes -d 'Exit with 0 or 1 (plain), or as fsck does' -r -f -a "plain\t''
fsck\t''"
complete -c thin_replay -s q -l quiet -d 'Print nothing on either stream; only the exit status speaks'
complete -c thin_replay -l json -d 'Print the result as JSON'
complete -c thin_replay -l skip-block-zeroing -d 'New blocks are not zeroed where a write fills only a part of them'
complete -c thin_replay -l elasticity -d 'Run the first policy with each assumed price halved and doubled'
complete -c thin_replay -l bare -d 'On threads: do the work only, and do not spin for what it costs'
complete -c thin_replay -l by-process -d 'Make a stream of each process of a block trace'
complete -c thin_replay -l lenient -d 'Pass over verbs that are not known'
complete -c thin_replay -l measure -d 'In JSON: also how long thin_delete would take here, which differs from run to run'
complete -c thin_replay -s h -l help -d 'Print this help'
complete -c thin_replay -s V -l version -d 'Print the version'
