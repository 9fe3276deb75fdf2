use super::verb::{List, Sequential};
use super::*;
use crate::base::ThinId;
use crate::block::memory::MemorySource;
use crate::thin::generate::{GenerateOptions, generate};

fn image(mappings: u64, snapshots: u64) -> MemorySource {
    let mut image = MemorySource::new(8000);
    let options = GenerateOptions {
        data_block_size: 1024,
        nr_data_blocks: Some(mappings * (snapshots + 1) + 20_000),
        mappings,
        snapshots,
        leaf_fill: 50..=50,
        ..GenerateOptions::default()
    };
    generate(&mut image, &options).unwrap();
    image
}

fn event(verb: Verb) -> Event {
    Event { when: When::Asap, verb }
}

fn stream<'a>(name: &str, foreground: bool, feed: impl Feed + 'a) -> StreamStart<'a> {
    StreamStart { name: name.into(), depth: Some(8), feed: Box::new(feed), foreground }
}

const POLICIES: [&str; 14] = [
    "coarse",
    "coarse+coalesce",
    "batch(1)",
    "batch(16)",
    "batch(16)+sleep(1ms)",
    "batch(1)+yield",
    "batch(4)+tick",
    "subleaf(31)",
    "budget(200us)",
    "rolling",
    "background",
    "background(500)+window(1ms)",
    "discard-first",
    "offline",
];

/// A fixed trace: the same requests whatever the policy.
fn fixed() -> Vec<StreamStart<'static>> {
    let write =
        |n: u64| event(Verb::Write { dev: ThinId(9), off: n * 700 % 90_000, len: 1500, fua: n.is_multiple_of(50) });
    let mut writes = vec![event(Verb::Create { dev: ThinId(9) })];
    writes.extend((0..400).map(write));
    writes.push(event(Verb::Discard { dev: ThinId(9), off: 4096, len: 9000 }));
    writes.push(event(Verb::Flush { dev: ThinId(9) }));
    let overwrite = |n: u64| event(Verb::Write { dev: ThinId(2), off: n * 40_960, len: 8, fua: false });
    writes.extend((0..100).map(overwrite));
    let delete = vec![
        event(Verb::Snap { dev: ThinId(10), origin: ThinId(2) }),
        event(Verb::Delete { dev: ThinId(1), policy: None }),
    ];
    vec![stream("w", true, List::new(writes)), stream("d", false, List::new(delete))]
}

#[test]
fn all_policies_end_in_the_same_mappings() {
    let source = image(6000, 1);
    let base = Base::open(&source).unwrap();
    let mut first = None;
    for policy in POLICIES {
        let options = RunOptions::new(Policy::parse(policy).unwrap(), Costs::standard());
        let mut outcome = run(&base, fixed(), &options).unwrap();
        assert_eq!((outcome.background.done, outcome.measured.failed), (1, 0), "{policy}");
        let logical = outcome.pool.logical().unwrap();
        assert_eq!(logical.len(), 3);
        assert!(*first.get_or_insert(logical.clone()) == logical, "{policy}");
        let latency: u64 = outcome.measured.latency.values().map(|histogram| histogram.count()).sum();
        assert_eq!(latency, 502 + u64::from(policy == "discard-first"), "{policy}");
        outcome.pool.seal().unwrap();
        let (report, counted) = crate::thin::check::check_and_count(
            &outcome.pool.overlay,
            &Default::default(),
            &crate::base::NoProgress,
            &mut |_| (),
        )
        .unwrap();
        let counted = counted.unwrap();
        assert!(report.devices.iter().all(|device| device.whole), "{policy}");
        for block in 0..outcome.pool.overlay.data.nr_blocks() {
            assert_eq!(outcome.pool.overlay.data.get(block), counted.data.get(block), "{policy}: data block {block}");
        }
        for block in 0..8000 {
            let count = counted.metadata.count(crate::base::BlockNr(block));
            assert_eq!(outcome.pool.overlay.metadata.get(block), count, "{policy}: block {block}");
        }
    }
}

#[test]
fn requests_without_measure_are_refused_or_end() {
    let source = image(6000, 0);
    let base = Base::open(&source).unwrap();
    let (dev, off) = (ThinId(1), 0);
    let huge = vec![
        event(Verb::Write { dev, off, len: 1 << 50, fua: false }),
        event(Verb::Discard { dev, off, len: 1 << 50 }),
        event(Verb::Discard { dev, off, len: 1 << 40 }),
        event(Verb::Sleep(1 << 55)),
        event(Verb::Wait("nobody".into())),
    ];
    let options = RunOptions::new(Policy::coarse(), Costs::standard());
    let mut outcome = run(&base, vec![stream("w", true, List::new(huge))], &options).unwrap();
    assert_eq!((outcome.measured.failed, outcome.end), (2, options.limit));
    assert_eq!(outcome.pool.logical().unwrap()[&dev], Vec::<u64>::new(), "one discard was done");
}

#[test]
fn the_same_run_gives_the_same_numbers() {
    let source = image(6000, 1);
    let base = Base::open(&source).unwrap();
    let options = RunOptions::new(Policy::parse("batch(4)").unwrap(), Costs::standard());
    let numbers = || {
        let outcome = run(&base, fixed(), &options).unwrap();
        (outcome.end, outcome.measured.allocated, outcome.measured.latency, outcome.measured.stalls)
    };
    assert_eq!(numbers(), numbers());
}

#[test]
fn every_rule_of_allocation_uses_free_blocks_only() {
    let source = image(6000, 0);
    let base = Base::open(&source).unwrap();
    for allocation in
        [Allocation::Cursor, Allocation::Goal, Allocation::Apart, Allocation::Shared, Allocation::Aligned(5)]
    {
        let options = RunOptions { allocation, ..RunOptions::new(Policy::coarse(), Costs::standard()) };
        let outcome = run(&base, fixed(), &options);
        // Device 2 is not there without snapshots: its writes and the snapshot are refused.
        let outcome = outcome.unwrap();
        assert_eq!(outcome.measured.failed, 101, "{allocation:?}");
        let mut taken: Vec<u64> = outcome.measured.allocated.iter().map(|(_, _, data)| *data).collect();
        taken.sort_unstable();
        taken.dedup();
        assert!(taken.len() > 80);
    }
}

#[test]
fn a_delete_under_one_lock_stops_writes_for_its_whole_time() {
    let source = image(12_600, 0);
    let base = Base::open(&source).unwrap();
    let options = RunOptions { until_deletes: 1, ..RunOptions::new(Policy::coarse(), Costs::standard()) };
    let create = List::new(vec![event(Verb::Create { dev: ThinId(9) })]);
    let writes = Sequential { dev: ThinId(9), len: 1024, write: true, at: 0 };
    let delete =
        List::new(vec![Event { when: When::At(500_000_000), verb: Verb::Delete { dev: ThinId(1), policy: None } }]);
    let starts = vec![stream("c", false, create), stream("w", true, writes), stream("d", false, delete)];
    let outcome = run(&base, starts, &options).unwrap();
    // 12600 counts, 100 leaves and a root, and the device out of two trees.
    let expected = 12_600 * 2270 + 101 * 2300 + 2 * 14_000;
    let time = outcome.delete_time().unwrap();
    assert!((expected..expected + 100_000).contains(&time), "{time}");
    let stall = outcome.longest_stall().unwrap();
    assert!(stall.length * 100 >= time * 98 && stall.holder == "delete", "{stall:?}");
    assert_eq!((stall.step.as_str(), stall.waiter.as_str()), ("walk", "submitter: map"));
    assert!(stall.held >= 12_600 * 2270 && stall.waited + 100_000 > stall.held && stall.entries == 12_600, "{stall:?}");
    let rate = outcome.measured.series[..4].iter().sum::<u64>() as f64 / 0.4;
    assert!((3.1e9..3.25e9).contains(&rate), "{rate}");
}

/// Discards that are not passed down take no time of the data device; those that are ignored leave the mappings.
#[test]
fn what_becomes_of_discards() {
    let source = image(6000, 0);
    let base = Base::open(&source).unwrap();
    let costs = Costs::standard().with("data", 100_000).unwrap();
    let discards = |policy: &str| {
        let options = RunOptions::new(Policy::parse(policy).unwrap(), costs.clone());
        let verb = Verb::Discard { dev: ThinId(1), off: 0, len: 1 << 30 };
        let mut outcome = run(&base, vec![stream("w", true, List::new(vec![event(verb)]))], &options).unwrap();
        assert_eq!(outcome.measured.latency["discard"].count(), 1, "{policy}");
        (outcome.end, outcome.pool.logical().unwrap()[&ThinId(1)].len())
    };
    let (down, only, none) = (discards("coarse"), discards("coarse+nopassdown"), discards("coarse+ignore"));
    assert_eq!((down.1, only.1, none.1), (0, 0, 6000));
    assert!(none.0 < only.0 && only.0 < down.0 / 2, "{none:?} {only:?} {down:?}");
}

/// A load on a device while device 1 is deleted.
fn beside_a_delete(dev: ThinId) -> Vec<StreamStart<'static>> {
    let create = List::new(vec![event(Verb::Create { dev })]);
    let writes = Sequential { dev, len: 1024, write: true, at: 0 };
    let delete =
        List::new(vec![Event { when: When::At(100_000_000), verb: Verb::Delete { dev: ThinId(1), policy: None } }]);
    vec![stream("c", false, create), stream("w", true, writes), stream("d", false, delete)]
}

#[test]
fn a_delete_in_another_pool_stops_nobody() {
    let source = image(12_600, 0);
    let base = Base::open(&source).unwrap();
    let stall = |policy: &str, dev| {
        let policy = Policy::parse(policy).unwrap();
        let options = RunOptions { until_deletes: 1, ..RunOptions::new(policy, Costs::standard()) };
        let outcome = run(&base, beside_a_delete(ThinId(dev)), &options).unwrap();
        outcome.longest_stall().unwrap().length
    };
    let one = stall("coarse", 10);
    assert!(one > 25_000_000, "{one}");
    assert_eq!(stall("coarse+split-pools(2)", 9), stall("coarse", 9), "9 is in the pool of 1");
    assert!(stall("coarse+split-pools(2)", 10) < 5_000_000, "10 is not");
}

#[test]
fn with_locks_for_bitmaps_taking_a_block_needs_no_exclusive_lock() {
    let source = image(6000, 0);
    let base = Base::open(&source).unwrap();
    let locks = |policy: &str, allocation| {
        let policy = Policy::parse(policy).unwrap();
        let options = RunOptions { allocation, until_deletes: 1, ..RunOptions::new(policy, Costs::standard()) };
        let outcome = run(&base, beside_a_delete(ThinId(9)), &options).unwrap();
        let taken = outcome.measured.allocated.len() as u64;
        let count = |name: &str| outcome.lock(name).map_or(0, |lock| lock.hold_exclusive.count());
        (taken, count("root"), count("space-map"), count("bitmap"))
    };
    let (taken, root, _, bitmap) = locks("batch(1)", Allocation::Goal);
    assert!(root > 2 * taken - 16 && bitmap == 0, "{taken} {root}");
    let (taken, root, _, bitmap) = locks("batch(1)", Allocation::Shared);
    assert!(root < taken + taken / 4 && bitmap == taken, "{taken} {root} {bitmap}");
    let (taken, _, space_map, bitmap) = locks("rolling", Allocation::Shared);
    assert!(space_map == 0 && bitmap > taken, "the delete takes locks of bitmaps as well: {bitmap} {taken}");
}

/// Breaking sharing with less than a block copies it; new blocks are zeroed first, where that is not turned off.
#[test]
fn parts_of_blocks_cost_the_data_device_more() {
    let source = image(6000, 1);
    let base = Base::open(&source).unwrap();
    let costs = Costs::standard().with("data", 1_000_000).unwrap();
    let time = |dev, len, zero| {
        // The first three blocks of the image's devices are not mapped.
        let verb = Verb::Write { dev: ThinId(dev), off: 3 * 1024, len, fua: false };
        let events = vec![event(Verb::Create { dev: ThinId(9) }), event(verb)];
        let options = RunOptions { zero, ..RunOptions::new(Policy::coarse(), costs.clone()) };
        let outcome = run(&base, vec![stream("w", true, List::new(events))], &options).unwrap();
        outcome.measured.latency["write"].max() / 1_000_000
    };
    // A whole block is written once, shared or new.
    assert_eq!((time(1, 1024, true), time(9, 1024, true)), (1, 1));
    // A part of a shared block: read, written, and the part itself; of a new one: zeros, and the part itself.
    assert_eq!((time(1, 512, true), time(9, 512, true), time(9, 512, false)), (2, 1, 0));
}

#[test]
fn a_worker_with_too_much_to_do_keeps_submitters_off() {
    let source = image(6000, 0);
    let base = Base::open(&source).unwrap();
    let costs = Costs::standard().with("remove", 500_000).unwrap();
    let discard = |n: u64| event(Verb::Discard { dev: ThinId(1), off: n * 512_000, len: 512_000 });
    let write = |n: u64| Event {
        when: When::At(n * 200_000_000),
        verb: Verb::Write { dev: ThinId(9), off: n * 1024, len: 1024, fua: false },
    };
    let mut writes = vec![event(Verb::Create { dev: ThinId(9) })];
    writes.extend((1..20).map(write));
    let open = StreamStart { name: "w".into(), depth: None, feed: Box::new(List::new(writes)), foreground: true };
    let discards = Box::new(List::new((0..12).map(discard).collect()));
    let discards = StreamStart { name: "d".into(), depth: None, feed: discards, foreground: false };
    let starts = vec![discards, open];
    let options = RunOptions::new(Policy::coarse(), costs);
    let outcome = run(&base, starts, &options).unwrap();
    let throttle = outcome.lock("throttle").unwrap();
    assert_eq!(throttle.hold_exclusive.count(), 1);
    // The discards take a quarter of a second each, and nearly all of them come in one pass.
    assert!((200_000_000..2_000_000_000).contains(&throttle.hold_exclusive.max()), "{:?}", throttle.hold_exclusive);
    assert!((200_000_000..2_000_000_000).contains(&throttle.wait_shared.max()), "{:?}", throttle.wait_shared);
}

#[test]
fn buffers_under_one_lock_cost_more_than_in_parts() {
    let source = image(6000, 0);
    let base = Base::open(&source).unwrap();
    let costs = Costs::standard().with("get", 1_000).unwrap();
    let run_with = |shards| {
        let policy = Policy::parse("batch(1)").unwrap();
        let options = RunOptions { shards, until_deletes: 1, ..RunOptions::new(policy, costs.clone()) };
        run(&base, beside_a_delete(ThinId(9)), &options).unwrap()
    };
    let (none, one, many) = (run_with(0), run_with(1), run_with(64));
    assert!(none.lock("buffers").is_none());
    let waits = |outcome: &Outcome<'_>| outcome.lock("buffers").unwrap().wait_exclusive.quantile(9900);
    assert!(waits(&one) > 0 && waits(&many) <= waits(&one), "{} {}", waits(&one), waits(&many));
    assert!(one.delete_time() > none.delete_time());
}

/// Without a cache nothing is waited for; with one a walk waits for each leaf, or for all of them together.
#[test]
fn a_walk_that_reads_ahead_waits_less() {
    let source = image(6000, 0);
    let base = Base::open(&source).unwrap();
    let time = |policy: &str, cache: Option<&str>| {
        let cache = cache.map(|rules| CacheRules::parse(rules).unwrap());
        let policy = Policy::parse(policy).unwrap();
        let options = RunOptions { cache, until_deletes: 1, ..RunOptions::new(policy, Costs::standard()) };
        let outcome = run(&base, beside_a_delete(ThinId(9)), &options).unwrap();
        let misses = outcome.cache.map_or(0, |cache| cache.misses);
        (outcome.delete_time().unwrap() / 1000, misses)
    };
    let (free, one_by_one) = (time("coarse", None), time("coarse", Some("unbounded")));
    // 47 leaves, a root, and the tree of devices, 100 us each.
    assert!((4_900..5_300).contains(&(one_by_one.0 - free.0)), "{free:?} {one_by_one:?}");
    let ahead = time("coarse+prefetch", Some("unbounded"));
    assert!(ahead.1 + 47 == one_by_one.1 && ahead.0 < free.0 + 700, "{free:?} {ahead:?}");
}

/// The second of two deletes of a device is refused, whenever it comes and however the first goes about it.
#[test]
fn a_device_is_deleted_once() {
    let source = image(6000, 0);
    let base = Base::open(&source).unwrap();
    for policy in POLICIES {
        for when in [When::Asap, When::At(1_000_000)] {
            let delete = |when| List::new(vec![Event { when, verb: Verb::Delete { dev: ThinId(1), policy: None } }]);
            let starts = vec![stream("a", false, delete(When::Asap)), stream("b", false, delete(when))];
            let options = RunOptions::new(Policy::parse(policy).unwrap(), Costs::standard());
            let mut outcome = run(&base, starts, &options).unwrap();
            assert_eq!((outcome.background.done, outcome.measured.failed), (1, 1), "{policy}");
            assert!(outcome.pool.logical().unwrap().is_empty(), "{policy}");
        }
    }
}

/// A pool without room refuses new blocks, each request once, goes on with the rest, and counts nothing as moved.
#[test]
fn a_full_pool_refuses_each_request_once() {
    let mut source = MemorySource::new(8000);
    let nr_data_blocks = Some(6500);
    let options =
        GenerateOptions { data_block_size: 1024, nr_data_blocks, mappings: 6000, ..GenerateOptions::default() };
    generate(&mut source, &options).unwrap();
    let base = Base::open(&source).unwrap();
    let write = |n: u64| event(Verb::Write { dev: ThinId(9), off: n * 2048, len: 2048, fua: false });
    let mut events = vec![event(Verb::Create { dev: ThinId(9) })];
    events.extend((0..400).map(write));
    let options = RunOptions::new(Policy::coarse(), Costs::standard());
    let mut outcome = run(&base, vec![stream("w", true, List::new(events))], &options).unwrap();
    let done = outcome.measured.latency["write"].count();
    assert_eq!(outcome.pool.logical().unwrap()[&ThinId(9)].len(), 500);
    assert!((245..=250).contains(&done) && outcome.measured.failed == 400 - done, "{done}");
    assert_eq!(outcome.measured.bytes, done << 20);
    assert_eq!(outcome.measured.series.iter().sum::<u64>(), outcome.measured.bytes);
}

/// A delete may come between the parts of other work on its device, whenever that is: the work is refused, and all goes on.
#[test]
fn a_delete_may_overtake_anything() {
    let source = image(6000, 0);
    let base = Base::open(&source).unwrap();
    for policy in POLICIES.into_iter().chain(["rolling+steal", "background(1)"]) {
        for when in [1, 10, 35, 50, 100, 500, 3000] {
            let part = |n: u64| match n % 3 {
                0 => Verb::Discard { dev: ThinId(1), off: n * 102_400, len: 102_400 },
                1 => Verb::Write { dev: ThinId(1), off: n * 1024, len: 700, fua: n.is_multiple_of(2) },
                _ => Verb::Write { dev: ThinId(1), off: 9_000_000 + n * 1024, len: 1024, fua: false },
            };
            let work = List::new((0..40).map(|n| event(part(n))).collect());
            let verb = Verb::Delete { dev: ThinId(1), policy: None };
            let delete = List::new(vec![Event { when: When::At(when * 1000), verb }]);
            let options = RunOptions::new(Policy::parse(policy).unwrap(), Costs::standard());
            let outcome = run(&base, vec![stream("w", true, work), stream("d", false, delete)], &options);
            let mut outcome = outcome.unwrap_or_else(|error| panic!("{policy} at {when} us: {error}"));
            let own = u64::from(policy == "discard-first");
            let done: u64 = outcome.measured.latency.values().map(|histogram| histogram.count()).sum();
            assert_eq!(
                (outcome.background.done, done + outcome.measured.failed),
                (1, 40 + own),
                "{policy} at {when} us"
            );
            assert!(outcome.pool.logical().unwrap().is_empty(), "{policy} at {when} us");
            let state = crate::replay::scenario::delete::soundness(&mut outcome).unwrap();
            assert!(state.is_sound(), "{policy} at {when} us: {state:?}");
        }
    }
}

/// A write that has to be durable waits for a commit of what has changed, also where its lookup had to wait.
#[test]
fn a_durable_write_waits_for_a_commit_whoever_maps_it() {
    let source = image(6000, 0);
    let base = Base::open(&source).unwrap();
    for cache in [None, Some("unbounded")] {
        let durable = event(Verb::Write { dev: ThinId(1), off: 3 * 1024, len: 1024, fua: true });
        let events = vec![event(Verb::Create { dev: ThinId(9) }), durable];
        let cache = cache.map(|rules| CacheRules::parse(rules).unwrap());
        let options = RunOptions { cache, ..RunOptions::new(Policy::coarse(), Costs::standard()) };
        let outcome = run(&base, vec![stream("w", true, List::new(events))], &options).unwrap();
        assert_eq!(outcome.measured.commits, 1, "{:?}", options.cache);
        assert!(outcome.measured.latency["write"].max() >= options.costs.commit);
    }
}

/// Who held a lock while nobody asked for anything is not to blame for what comes later.
#[test]
fn a_stall_is_blamed_on_its_own_time_only() {
    let source = image(6000, 0);
    let base = Base::open(&source).unwrap();
    let write = |n: u64| Event {
        when: When::At(n * 200_000_000),
        verb: Verb::Write { dev: ThinId(9), off: n * 1024, len: 1024, fua: false },
    };
    let writes = List::new(vec![event(Verb::Create { dev: ThinId(9) }), write(1), write(2)]);
    let delete =
        List::new(vec![Event { when: When::At(300_000_000), verb: Verb::Delete { dev: ThinId(1), policy: None } }]);
    let options = RunOptions::new(Policy::coarse(), Costs::standard());
    let outcome = run(&base, vec![stream("w", true, writes), stream("d", false, delete)], &options).unwrap();
    assert_eq!(outcome.measured.stalls.len(), 2);
    for stall in &outcome.measured.stalls {
        assert!(stall.holder != "delete" && stall.held <= stall.length && stall.waited <= stall.length, "{stall:?}");
    }
}

/// What never comes to its end is counted.
#[test]
fn a_stream_that_waits_for_nothing_is_unfinished() {
    let source = image(6000, 0);
    let base = Base::open(&source).unwrap();
    let options = RunOptions::new(Policy::coarse(), Costs::standard());
    let unfinished = |verb| {
        let events = vec![event(verb), event(Verb::Commit)];
        run(&base, vec![stream("w", true, List::new(events))], &options).unwrap().unfinished
    };
    assert_eq!(unfinished(Verb::Wait("typo".into())), 1);
    assert_eq!(unfinished(Verb::Sleep(options.limit + 1)), 1);
    assert_eq!(unfinished(Verb::Mark("a".into())), 0);
}
