use super::*;
use crate::base::BlockNr;
use crate::replay::scenario::cache::MissCurve;
use proptest::prelude::{Just, Strategy, prop_oneof, proptest};

fn node(block: u64) -> Used {
    Used::Node(BlockNr(block))
}

fn cache(rules: &str) -> Cache {
    Cache::new(CacheRules::parse(rules).unwrap(), 1)
}

/// Reads blocks, a nanosecond apart; says which were missed.
fn read(cache: &mut Cache, from: Ns, blocks: &[u64]) -> Vec<bool> {
    (from..).zip(blocks).map(|(now, block)| cache.touch(0, node(*block), How::Read, now).miss).collect()
}

#[test]
fn rules_are_read() {
    let rules = CacheRules::parse("cap(256KiB)+age(300s)+retain(128KiB)+flush+forget+share+shards(4)+prefetch-hint");
    let rules = rules.unwrap();
    assert_eq!((rules.capacity, rules.age, rules.retain), (Some(64), Some(300_000_000_000), 32));
    assert_eq!((rules.flush, rules.forget, rules.share), (Some(Flush::Ratio), true, true));
    assert_eq!((rules.shards, rules.prefetch_hint), (4, true));
    assert_eq!(CacheRules::parse("cap(7)").unwrap().capacity, Some(7));
    assert_eq!(CacheRules::parse("unbounded").unwrap(), CacheRules::default());
    for bad in [
        "",
        "cap",
        "cap(0)",
        "cap(1KiB)",
        "cap(x)",
        "cap(1",
        "age(1s)",
        "cap(4)+age",
        "cap(4)+age(1)",
        "cap(4)+shards(0)",
        "cap(4)+shards(5)",
        "unbounded+flush(half)",
        "cap(4)+flush(third)",
        "cap(99999999999999999999)",
        "cap(4)+nap",
    ] {
        assert!(CacheRules::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn the_least_recently_used_goes() {
    let mut cache = cache("cap(2)");
    assert_eq!(read(&mut cache, 0, &[1, 2, 1, 3, 1, 2]), [true, true, false, true, false, true]);
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses, stats.evictions, stats.peak), (2, 4, 2, 2));
}

#[test]
fn dirty_blocks_are_written_before_they_go_and_by_commits() {
    let mut cache = cache("cap(2)");
    assert_eq!(cache.touch(0, node(1), How::New, 0), Touch { miss: false, written: 0 });
    assert_eq!(cache.touch(0, node(2), How::Write, 1), Touch { miss: true, written: 0 });
    assert_eq!(cache.touch(0, node(3), How::Read, 2), Touch { miss: true, written: 1 });
    assert_eq!(cache.commit(0, 3), 1);
    assert_eq!(cache.touch(0, node(4), How::Read, 4), Touch { miss: true, written: 0 });
    assert_eq!((cache.stats().written_early, cache.stats().written_by_commits, cache.stats().flushes), (1, 1, 1));
}

#[test]
fn old_blocks_go_but_for_those_that_are_retained() {
    let mut aged = cache("unbounded+age(1us)");
    read(&mut aged, 0, &[1, 2, 3]);
    aged.touch(0, node(4), How::Read, 5_000);
    assert_eq!((aged.len(), aged.stats().aged), (1, 3));
    let mut kept = cache("unbounded+age(1us)+retain(2)");
    read(&mut kept, 0, &[1, 2, 3]);
    kept.touch(0, node(4), How::Read, 5_000);
    assert_eq!((kept.len(), kept.stats().aged), (3, 1));
    assert!(!kept.contains(0, node(1)));
    // Three blocks for nearly all of 5 us.
    assert!((2.9..=3.0).contains(&aged.stats().mean), "{}", aged.stats().mean);
}

#[test]
fn freed_blocks_are_not_written_and_go_at_once_where_that_is_the_rule() {
    for (rules, left) in [("cap(4)", 1), ("cap(4)+forget", 0)] {
        let mut cache = cache(rules);
        cache.touch(0, node(1), How::New, 0);
        cache.touch(0, node(1), How::Free, 1);
        assert_eq!((cache.len(), cache.commit(0, 2)), (left, 0), "{rules}");
    }
}

#[test]
fn dirty_blocks_are_written_early() {
    let mut half = cache("cap(8)+flush(half)");
    let written: Vec<u64> = (0..8).map(|block| half.touch(0, node(block), How::New, block).written).collect();
    // With seven of eight dirty, less than a quarter is clean: four of them go.
    assert_eq!(written, [0, 0, 0, 0, 0, 0, 4, 0]);
    let mut ratio = cache("unbounded+flush");
    let early: u64 = (0..100).map(|block| ratio.touch(0, node(block), How::New, block).written).sum();
    assert_eq!((early, ratio.commit(0, 100)), (25, 75));
}

#[test]
fn pools_have_bounds_of_their_own_or_share_one() {
    let rules = |text| CacheRules::parse(text).unwrap();
    let mut own = Cache::new(rules("cap(2)"), 2);
    let mut shared = Cache::new(rules("cap(2)+share"), 2);
    for cache in [&mut own, &mut shared] {
        for block in 0..2 {
            cache.touch(0, node(block), How::Read, block);
        }
        for block in 0..2 {
            cache.touch(1, node(block), How::New, 2 + block);
        }
        assert!(cache.contains(1, node(1)));
    }
    assert_eq!((own.len(), own.contains(0, node(0))), (4, true), "the same number in another pool is another block");
    assert_eq!((shared.len(), shared.contains(0, node(0))), (2, false));
    assert_eq!((shared.commit(0, 9), shared.commit(1, 9)), (0, 2));
}

#[test]
fn parts_give_second_chances() {
    let mut parts = cache("cap(4)+shards(2)");
    // Even blocks are in one part, with room for two.
    assert_eq!(read(&mut parts, 0, &[2, 4, 2, 6]), [true, true, false, true]);
    assert!(parts.contains(0, node(2)) && !parts.contains(0, node(4)), "2 was used again");
    read(&mut parts, 4, &[1, 3, 5]);
    assert!(parts.contains(0, node(6)) && parts.len() == 4);
}

#[test]
fn what_is_read_ahead_is_there() {
    let mut cache = cache("cap(2)");
    assert!(cache.prefetch(0, node(1), 0) && !cache.prefetch(0, node(1), 1));
    assert!(!cache.touch(0, node(1), How::Read, 2).miss);
    assert_eq!((cache.stats().prefetched, cache.stats().misses), (1, 0));
}

fn uses() -> impl Strategy<Value = Vec<(Used, How)>> {
    let how = prop_oneof![Just(How::Read), Just(How::Read), Just(How::Write), Just(How::New)];
    proptest::collection::vec(((0u64..40).prop_map(node), how), 1..400)
}

proptest! {
    /// A cache that only has a bound misses what the curve of all bounds says.
    #[test]
    fn the_miss_curve_is_exact(log in uses(), room in 1u64..50) {
        let mut cache = Cache::new(CacheRules { capacity: Some(room), ..CacheRules::default() }, 1);
        let misses = (0..).zip(&log).filter(|(now, (used, how))| cache.touch(0, *used, *how, *now).miss).count() as u64;
        assert_eq!(misses, MissCurve::of(&log).misses(room));
        assert!(cache.len() <= room && cache.stats().misses == misses);
    }

    /// Whatever the rules: no more than there is room for, and all that is dirty is written in the end.
    #[test]
    fn bounds_hold(log in uses(), room in 4u64..50, extra in 0usize..6) {
        let more = ["", "+shards(3)", "+flush", "+flush(half)", "+forget", "+age(20ns)+retain(3)"][extra];
        let mut cache = cache(&format!("cap({room}){more}"));
        for (now, (used, how)) in (0..).zip(&log) {
            cache.touch(0, *used, *how, now);
            assert!(cache.len() <= room && cache.contains(0, *used));
        }
        cache.commit(0, 1000);
        assert_eq!(cache.commit(0, 1001), 0);
        assert!(cache.parts.iter().all(|part| part.dirty == 0) && cache.parts.iter().map(|part| part.len).sum::<u64>() == cache.len());
    }
}
