use super::*;
use crate::base::Random;
use crate::block::memory::MemorySource;
use crate::thin::fix::{self, FixOptions};
use crate::thin::generate::{GenerateOptions, generate};

fn image(options: &GenerateOptions) -> MemorySource {
    let mut image = MemorySource::new(2000);
    generate(&mut image, options).unwrap();
    image
}

/// Seals the pool, rebuilds the space maps as a save does, and checks: clean, and the counts that were kept are right.
fn expect_sound(mut pool: LivePool<'_>) {
    pool.seal().unwrap();
    let overlay = &pool.overlay;
    let (report, counted) = check_and_count(overlay, &CheckOptions::default(), &NoProgress, &mut |_| ()).unwrap();
    let counted = counted.unwrap();
    let mut saved = MemorySource::new(overlay.nr_blocks());
    for block in (0..overlay.nr_blocks()).map(BlockNr) {
        assert_eq!(overlay.metadata.get(block.0), counted.metadata.count(block), "block {block}");
        saved.put(block, &overlay.read(block).unwrap()).unwrap();
    }
    for block in 0..overlay.data.nr_blocks() {
        assert_eq!(overlay.data.get(block), counted.data.get(block), "data block {block}");
    }
    let options = FixOptions { space_maps: true, ..FixOptions::default() };
    if let Some(fix) = fix::plan(overlay, &report, Some(&counted), options).unwrap() {
        fix.commit(&mut saved).unwrap();
    }
    let (report, _) = check_and_count(&saved, &CheckOptions::default(), &NoProgress, &mut |_| ()).unwrap();
    assert_eq!(report.findings.worst(), None, "{}", report.text());
}

fn delete(pool: &mut LivePool<'_>, id: ThinId) {
    let root = pool.unlink(id).unwrap();
    pool.overlay.release_tree(root, Values::Data).unwrap();
}

#[test]
fn whatever_is_done_the_pool_stays_sound() {
    let options = GenerateOptions {
        devices: 3,
        snapshots: 2,
        mappings: 6000,
        leaf_fill: 50..=90,
        nr_data_blocks: Some(60_000),
        metadata_snapshot: true,
        ..GenerateOptions::default()
    };
    let source = image(&options);
    let base = Base::open(&source).unwrap();
    for (seed, split) in [(1, SplitRule::Half), (2, SplitRule::ShareFirst)] {
        let (mut pool, mut random) = (base.pool(split), Random::new(seed));
        let mut free = 0;
        for round in 0..6000 {
            let ids: Vec<ThinId> = pool.devices().map(|(id, _)| id).collect();
            let id = ids[random.below(ids.len() as u64) as usize];
            let block = ThinBlock(random.below(9000));
            match random.below(1000) {
                0..600 => {
                    free = pool.overlay.take_data(free).unwrap();
                    pool.insert(id, block, DataBlock(free)).unwrap();
                    assert_eq!(pool.lookup(id, block).unwrap().unwrap().data, DataBlock(free));
                }
                600..970 => _ = pool.remove(id, block).unwrap(),
                970..975 => pool.snapshot(ThinId(1000 + round), id).unwrap(),
                975..978 => pool.create(ThinId(1000 + round)).unwrap(),
                978..982 if ids.len() > 5 => delete(&mut pool, id),
                982..984 => _ = pool.release_held().or_else(|_| pool.hold()),
                984.. => _ = pool.commit().unwrap(),
                _ => {}
            }
        }
        let mapped: BTreeMap<ThinId, u64> = pool.devices().collect();
        let logical = pool.logical().unwrap();
        assert!(logical.iter().all(|(id, blocks)| mapped[id] == blocks.len() as u64));
        expect_sound(pool);
    }
}

#[test]
fn an_empty_pool_is_left() {
    let source = image(&GenerateOptions { devices: 2, snapshots: 3, mappings: 3000, ..GenerateOptions::default() });
    let base = Base::open(&source).unwrap();
    let mut pool = base.pool(SplitRule::Half);
    for (id, _) in base.devices() {
        delete(&mut pool, id);
    }
    assert_eq!((pool.devices().count(), pool.overlay.data.nr_used()), (0, 0));
    assert!(matches!(pool.root(ThinId(1)), Err(LiveError::NoDevice(_))));
    expect_sound(pool);
}

#[test]
fn damage_is_refused() {
    let mut source = image(&GenerateOptions { devices: 1, mappings: 3000, ..GenerateOptions::default() });
    source.put(BlockNr(3), &[1; 4096]).unwrap();
    assert!(matches!(Base::open(&source), Err(LiveError::Damaged)));
}
