use super::*;
use crate::base::Random;
use crate::block::memory::MemorySource;
use crate::format::mapping;
use crate::pdata::counts::Counts;
use crate::pdata::ledger::Ledger;
use std::collections::BTreeMap;

const BLOCKS: u64 = 4000;

fn overlay(source: &MemorySource, split: SplitRule) -> Overlay<'_> {
    let metadata = RefCounts::of(BLOCKS, &Ledger::new(BLOCKS));
    Overlay::new(source, metadata, RefCounts::of(100_000, &Counts::new(100_000)), split)
}

fn value(data: u64) -> [u8; 8] {
    mapping::pack(crate::base::DataBlock(data), 0).to_le_bytes()
}

/// Entries, leaf sizes and every node of a tree; keys are in order and every node is reached once.
fn contents(overlay: &mut Overlay<'_>, root: BlockNr) -> (BTreeMap<u64, u64>, Vec<usize>, Vec<BlockNr>) {
    let (mut entries, mut leaves, mut nodes, mut stack) = (BTreeMap::new(), vec![], vec![], vec![(root, 0)]);
    while let Some((block, least)) = stack.pop() {
        nodes.push(block);
        let (leaf, pairs) = overlay
            .with_node(block, Values::Data, |node| {
                assert_eq!(node.first_out_of_order(), None);
                let pairs = node.keys().iter().zip(node.values_u64()).map(|(k, v)| (k.get(), v.get()));
                (node.is_leaf(), pairs.collect::<Vec<_>>())
            })
            .unwrap();
        assert!(pairs.first().is_none_or(|(key, _)| *key >= least), "block {block}");
        if leaf {
            leaves.push(pairs.len());
            entries.extend(pairs.into_iter().map(|(key, value)| (key, value >> 24)));
        } else {
            stack.extend(pairs.into_iter().rev().map(|(key, child)| (BlockNr(child), key)));
        }
    }
    (entries, leaves, nodes)
}

/// Inserts with a new data block, as a provision does.
fn provision(overlay: &mut Overlay<'_>, root: BlockNr, key: u64) -> BlockNr {
    let data = overlay.take_data(0).unwrap();
    let inserted = overlay.insert(root, Values::Data, key, &value(data)).unwrap();
    if let Some(old) = inserted.old {
        overlay.release_data(u64::from_le_bytes(old.try_into().unwrap()) >> 24);
    }
    inserted.root
}

fn drain(overlay: &mut Overlay<'_>, root: BlockNr, most: usize) -> u64 {
    let (mut walk, mut entries) = (DeleteWalk::new(root), 0);
    loop {
        match walk.step(overlay, most).unwrap() {
            Released::Entries { entries: some, runs, .. } => {
                assert!(some <= most as u64 && runs <= some);
                entries += some;
            }
            Released::Node { block, .. } => drop(overlay.release(block)),
            Released::End => return entries,
        }
    }
}

/// Index entries of bitmaps 0 and 64 push each other out, those of 0 and 1 don't; counts of 3 leave their tree.
#[test]
fn a_walk_says_what_makes_entries_dearer() {
    let source = MemorySource::new(BLOCKS);
    let bitmap = 16_320;
    let beyond = |nr_bitmaps: u64, blocks: &[u64], count: u32| {
        let nr_blocks = nr_bitmaps * bitmap;
        let metadata = RefCounts::of(BLOCKS, &Ledger::new(BLOCKS));
        let data = RefCounts::of(nr_blocks, &Counts::new(nr_blocks));
        let mut overlay = Overlay::new(&source, metadata, data, SplitRule::Half);
        let mut root = overlay.empty_tree(Values::Data).unwrap();
        for (key, block) in (0..).zip(blocks) {
            root = overlay.insert(root, Values::Data, key, &value(*block)).unwrap().root;
            (0..count).for_each(|_| _ = overlay.data.inc(*block));
        }
        assert_eq!(overlay.data.nr_high(), if count < 3 { 0 } else { blocks.len() as u64 });
        let (mut walk, mut sum) = (DeleteWalk::new(root), (0, 0, 0));
        loop {
            let step = walk.step(&mut overlay, 3).unwrap();
            let Beyond { index, overflow, settle } = walk.beyond();
            sum = (sum.0 + index, sum.1 + overflow, sum.2 + settle);
            match step {
                Released::Node { block, .. } => drop(overlay.release(block)),
                Released::Entries { .. } => {}
                Released::End => return sum,
            }
        }
    };
    let over = |other: u64| (0..500).map(|n| n + n % 2 * other * bitmap).collect::<Vec<u64>>();
    assert_eq!(beyond(80, &over(1), 1), (2, 0, 0));
    assert_eq!(beyond(80, &over(64), 2), (500, 0, 0));
    assert_eq!(beyond(200, &over(64), 1), (1000, 0, 0), "that index tree has two levels");
    // 500 high counts are in two leaves, with a node above.
    assert_eq!(beyond(80, &over(1), 3), (2, 0, 1000));
    assert_eq!(beyond(80, &over(1), 4), (2, 500, 0));
}

#[test]
fn ascending_inserts_fill_leaves_as_the_split_rule_says() {
    for (split, least, most) in [(SplitRule::Half, 126, 126), (SplitRule::ShareFirst, 240, 252)] {
        let source = MemorySource::new(BLOCKS);
        let mut overlay = overlay(&source, split);
        let mut root = overlay.empty_tree(Values::Data).unwrap();
        for key in 0..40_000 {
            root = provision(&mut overlay, root, key);
        }
        let (entries, leaves, _) = contents(&mut overlay, root);
        assert_eq!(entries.len(), 40_000);
        let inner = &leaves[..leaves.len() - 2];
        assert!(inner.iter().all(|leaf| (least..=most).contains(leaf)), "{split:?} {inner:?}");
    }
}

#[test]
fn trees_follow_a_plain_map() {
    for (seed, split) in [(1, SplitRule::Half), (2, SplitRule::ShareFirst), (3, SplitRule::ShareFirst)] {
        let source = MemorySource::new(BLOCKS);
        let (mut overlay, mut random) = (overlay(&source, split), Random::new(seed));
        let mut map = BTreeMap::new();
        let mut root = overlay.empty_tree(Values::Data).unwrap();
        for round in 0..60_000 {
            let key = random.below(20_000);
            if random.percent(if round < 30_000 { 80 } else { 25 }) {
                root = provision(&mut overlay, root, key);
                map.insert(key, overlay.lookup_u64(root, Values::Data, key).unwrap().unwrap() >> 24);
            } else {
                let removed = overlay.remove(root, Values::Data, key).unwrap();
                root = removed.root;
                let old = removed.old.map(|old| u64::from_le_bytes(old.try_into().unwrap()) >> 24);
                assert_eq!(old, map.remove(&key));
                old.map(|old| overlay.release_data(old));
            }
            if random.below(500) == 0 {
                overlay.commit();
            }
            if random.below(300) == 0 {
                let next = overlay.next_entry(root, Values::Data, key).unwrap();
                assert_eq!(next, map.range(key..).next().map(|(key, _)| *key));
            }
        }
        let (entries, leaves, nodes) = contents(&mut overlay, root);
        assert_eq!(entries, map);
        assert_eq!(overlay.metadata.nr_used(), nodes.len() as u64 + 1, "no block is lost");
        assert_eq!(overlay.data.nr_used(), map.len() as u64);
        assert!(leaves.iter().all(|leaf| *leaf >= 252 / 3 - 1), "{leaves:?}");
        for key in map.keys() {
            root = overlay.remove(root, Values::Data, *key).unwrap().root;
        }
        assert_eq!(contents(&mut overlay, root).1, [0], "an empty leaf is left");
        assert_eq!(overlay.metadata.nr_used(), 2);
    }
}

#[test]
fn snapshots_share_until_they_differ_and_all_deletes_free_everything() {
    let source = MemorySource::new(BLOCKS);
    let (mut overlay, mut random) = (overlay(&source, SplitRule::Half), Random::new(9));
    let mut root = overlay.empty_tree(Values::Data).unwrap();
    for key in 0..10_000 {
        root = provision(&mut overlay, root, key);
    }
    let mut kept = vec![];
    for _ in 0..4 {
        overlay.commit();
        overlay.share(root);
        kept.push((root, contents(&mut overlay, root).0));
        for _ in 0..50 {
            root = provision(&mut overlay, root, random.below(10_000));
        }
    }
    for (root, entries) in &kept {
        assert_eq!(contents(&mut overlay, *root).0, *entries, "a snapshot does not change");
    }
    let mut count = 0;
    for (root, most) in kept.iter().map(|(root, _)| *root).chain([root]).zip([1, 7, 126, 1000, 63]) {
        count += drain(&mut overlay, root, most);
    }
    assert_eq!((overlay.metadata.nr_used(), overlay.data.nr_used()), (1, 0));
    assert!((10_200..45_000).contains(&count), "what is shared is not looked at: {count}");
}

#[test]
fn a_full_device_is_an_error() {
    let source = MemorySource::new(20);
    let metadata = RefCounts::of(20, &Ledger::new(20));
    let data = RefCounts::of(10_000, &Counts::new(10_000));
    let mut overlay = Overlay::new(&source, metadata, data, SplitRule::Half);
    let mut root = overlay.empty_tree(Values::Data).unwrap();
    let failed = (0..10_000).find_map(|key| match overlay.insert(root, Values::Data, key, &value(key)) {
        Ok(inserted) => {
            root = inserted.root;
            None
        }
        Err(error) => Some(error),
    });
    assert_eq!(failed, Some(OverlayError::NoMetadata));
}

/// A leaf with a third of its capacity is dealt with before one more entry goes: with both neighbours where there are two.
#[test]
fn a_small_leaf_is_joined_or_evened_out_with_both_neighbours() {
    let rows = [
        // Half full leaves: the middle one goes, to the left as far as there is room.
        (SplitRule::Half, 1, vec![209, 126]),
        // At the edge there is one neighbour only: 126 and 84 are too many for two thirds of a node.
        (SplitRule::Half, 0, vec![104, 105, 126]),
        // Nearly full leaves: 248, 84 and 248 are evened out.
        (SplitRule::ShareFirst, 1, vec![194, 192, 193]),
    ];
    for (split, at, expected) in rows {
        let source = MemorySource::new(BLOCKS);
        let mut overlay = overlay(&source, split);
        let mut root = overlay.empty_tree(Values::Data).unwrap();
        for key in 0..5000 {
            root = provision(&mut overlay, root, key);
        }
        let leaves = contents(&mut overlay, root).1;
        let begin: usize = leaves[..at].iter().sum();
        let small = leaves[at] - 84;
        for key in begin..=begin + small {
            if key == begin + small {
                assert_eq!(contents(&mut overlay, root).1[at], 84);
            }
            root = overlay.remove(root, Values::Data, key as u64).unwrap().root;
        }
        let now = contents(&mut overlay, root).1;
        assert_eq!(now[..expected.len()], expected, "{split:?} {at} {leaves:?}");
        assert_eq!(now.iter().sum::<usize>(), 5000 - small - 1);
    }
}

/// Three levels: inner nodes are joined and evened out as leaves are, and none but the root gets too small.
#[test]
fn removals_keep_all_nodes_a_third_full() {
    let source = MemorySource::new(BLOCKS);
    let (mut overlay, mut random) = (overlay(&source, SplitRule::Half), Random::new(4));
    let mut root = overlay.empty_tree(Values::Data).unwrap();
    let mut map: BTreeMap<u64, u64> = BTreeMap::new();
    for key in 0..80_000 {
        root = provision(&mut overlay, root, key);
        map.insert(key, overlay.lookup_u64(root, Values::Data, key).unwrap().unwrap() >> 24);
    }
    let mut keys: Vec<u64> = map.keys().copied().collect();
    while keys.len() > 30_000 {
        let key = keys.swap_remove(random.below(keys.len() as u64) as usize);
        root = overlay.remove(root, Values::Data, key).unwrap().root;
        map.remove(&key);
    }
    let (entries, _, nodes) = contents(&mut overlay, root);
    assert_eq!(entries, map);
    for block in nodes.into_iter().filter(|block| *block != root) {
        let len = overlay.with_node(block, Values::Data, |node| node.len()).unwrap();
        assert!(len >= 252 / 3 - 1, "node {block} has {len} entries");
    }
}
