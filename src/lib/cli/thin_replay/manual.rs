//! The manual page of `thin_replay`.

use super::super::manual::{Part, Section, exit_status};

pub(super) fn manual() -> Vec<Section> {
    vec![
        Section {
            title: "DESCRIPTION",
            parts: vec![
                Part::text(
                    "thin_replay runs the operations of a pool on a copy of its real trees, under locks and policies of \
                     your choice, and says what each would have done to the I/O: throughput, latencies, the longest stall \
                     and who caused it, and how long a delete takes. The metadata is only read; it has to be sound. The \
                     clock is virtual: the same input gives the same output, byte for byte, on every machine. What steps \
                     cost is in a profile, with the origin of every value.",
                ),
                Part::entry("METADATA --trace FILE", "Replays a trace under each policy."),
                Part::entry(
                    "predict METADATA --delete LIST",
                    "Says how long deletes would stop writes to new blocks, by policy, without a trace; and, on standard \
                     error or with --json --measure, how long thin_delete would take on this machine.",
                ),
                Part::entry(
                    "scenario NAME",
                    "Runs a published case and holds it against the published figures: delete, cache, barrier, groups, \
                     stripe, or all.",
                ),
                Part::entry(
                    "sweep",
                    "Varies everything that is assumed, and says whether the order of policies holds.",
                ),
                Part::entry("costs [PROFILE]", "Prints a cost profile, or the names of all profiles."),
                Part::entry("import FILE", "Prints a recording as a trace, and says what was not taken."),
                Part::entry("generate NAME", "Prints a made trace; an unknown name lists them."),
            ],
        },
        Section {
            title: "POLICIES",
            parts: vec![
                Part::entry("coarse", "The pool's lock is held for the whole delete."),
                Part::entry("batch(N)", "The lock is shared, and given up when N nodes wait to be released."),
                Part::entry("subleaf(N)", "The same after N entries, also inside a leaf."),
                Part::entry("budget(T)", "The same when the lock was held for so long, as in 100us."),
                Part::entry(
                    "rolling",
                    "No pool lock: the space map has one of its own. rolling+steal lets a runner go first.",
                ),
                Part::entry("background(N)", "Mappings are removed N at a time, each time as a whole change."),
                Part::entry("discard-first", "All is discarded by requests, then the empty device is deleted."),
                Part::entry("offline", "The pool is not in service."),
                Part::text(
                    "To these can be added: +sleep(T), +yield (only where somebody waits), +tick, +window(T) (so long where \
                     somebody waits), +coalesce (neighbouring counts together), +prefetch (a walk asks for all children of a \
                     node at once; with --cache), and +split-pools(N) (devices are spread over N pools by their ids). For \
                     discards there are +nopassdown (they end at the pool, and the data device sees none) and +ignore (they \
                     do nothing, so that blocks stay mapped).",
                ),
            ],
        },
        Section {
            title: "CACHES",
            parts: vec![
                Part::text(
                    "Without --cache all metadata is in memory from the beginning. With it nothing is at first, and a block \
                     that is not there is waited for with the lock held; only the map path leaves it to the worker. RULES \
                     begin with cap(SIZE), as in cap(256KiB) or cap(64) blocks, or with unbounded.",
                ),
                Part::entry("+age(T)", "Blocks that were not used for so long go; they are looked at every T/10."),
                Part::entry("+retain(SIZE)", "So much stays, however old it is."),
                Part::entry(
                    "+flush, +flush(half)",
                    "Dirty blocks are written early: when there are more than three times as many as clean ones; or half of \
                     them when less than a quarter of the cache is clean.",
                ),
                Part::entry("+forget", "A block that is freed goes at once."),
                Part::entry("+share", "One bound for all pools of +split-pools(N) together, not one for each."),
                Part::entry(
                    "+shards(N)",
                    "N parts, in which a used block gets a second chance in place of being moved.",
                ),
                Part::entry("+prefetch-hint", "What the map path misses is recorded, and read at once by the worker."),
            ],
        },
        Section {
            title: "TRACES",
            parts: vec![
                Part::text(
                    "A trace is text, one event a line: time in microseconds, '+t' after the event before, or '-' for as \
                     soon as possible; the stream; a verb; and key=value. Offsets and lengths are in sectors.",
                ),
                Part::example(
                    "thin-trace 1\n\
                     H clock=us pool_block=1024\n\
                     S w0 mode=closed depth=8 dev=6\n\
                     -     w0 write  off=0 len=1024\n\
                     1000  d0 delete dev=5 policy=batch(16)",
                ),
                Part::text(
                    "Verbs: read, write, discard, flush, commit, create, snap, delete, trim-pool, msnap, mrelease, lookup, \
                     sleep, mark, wait, expect. What they need: off= and len= for read, write (with flags=fua) and discard, \
                     off= for lookup, origin= for snap, us= for sleep, lat= for expect, name= for mark and wait (a mark or \
                     another stream's name); dev=, unless the stream has one; policy= may stand with delete. A run ends \
                     after a day of virtual time. I/O logs of fio (versions 2 and 3) and the default text of blkparse are \
                     taken as they are, with --map. Of a block trace of the pool below, --action A takes the requests of \
                     the devices above. Every line of a recording is taken, or counted with the reason.",
                ),
                Part::text(
                    "Deletes and snapshots are messages to the pool, and in no such recording. A log of them can stand \
                     beside it with --side: a time and what the message was. With a fraction a time is in seconds, \
                     without in microseconds; 'start' says when the recording began.",
                ),
                Part::example(
                    "1700000001.25 start\n\
                     1700000004.75 create_snap 6 5\n\
                     1700000009.5 delete 5",
                ),
            ],
        },
        exit_status(vec![Part::text("A scenario in which a judged check does not hold fails.")]),
        Section {
            title: "EXAMPLES",
            parts: vec![
                Part::text("How long would deleting a device stop the pool, and what would help?"),
                Part::example("thin_replay predict pool.pack --delete 17"),
                Part::text("Replay a recorded block trace while a snapshot is deleted, and look at it:"),
                Part::example(
                    "thin_replay pool.img --trace blkparse.txt --map 253,4:6 --side deletes.trace \\\n\
                     \x20   -p coarse -p 'subleaf(31)' --svg timeline.svg",
                ),
                Part::text("The whole acceptance table:"),
                Part::example("thin_replay scenario all"),
            ],
        },
    ]
}
