//! What is asked for is done, no more, and the checker sees it.

use super::{
    BlockDamage, DamageError, Kind, Leaks, Override, Target, create_leaks, damage_blocks, override_roots, write,
};
use crate::base::{BlockNr, Code, NoProgress, Severity};
use crate::block::memory::MemorySource;
use crate::format::block;
use crate::thin::check::{CheckOptions, check};
use crate::thin::generate::{GenerateOptions, generate};
use crate::thin::report::Report;

fn pool() -> MemorySource {
    let options = GenerateOptions {
        devices: 3,
        snapshots: 2,
        mappings: 60_000,
        change: 3,
        metadata_snapshot: true,
        ..GenerateOptions::default()
    };
    let mut image = MemorySource::new(4000);
    generate(&mut image, &options).unwrap();
    image
}

fn checked(image: &MemorySource) -> Report {
    check(image, &CheckOptions::default(), &NoProgress, &mut |_| ()).unwrap()
}

fn differing(a: &MemorySource, b: &MemorySource) -> Vec<BlockNr> {
    (0..4000).map(BlockNr).filter(|block| a.get(*block) != b.get(*block)).collect()
}

#[test]
fn every_kind_on_every_target_is_found() {
    let sound = pool();
    let mut done = 0;
    for (target_name, target) in Target::ALL {
        for (kind_name, kind) in Kind::ALL {
            for (reseal, count) in [(false, 1), (true, 2)] {
                let wanted = BlockDamage { kind, target, count, reseal, seed: done };
                let damage = match damage_blocks(&sound, &wanted) {
                    Ok(damage) => damage,
                    Err(DamageError::TooFew { found, .. }) => {
                        assert!(found < count);
                        continue;
                    }
                    Err(error) => panic!("{kind_name} on {target_name}: {error}"),
                };
                let mut image = sound.clone();
                write(&mut image, &damage).unwrap();
                let mut told: Vec<BlockNr> = damage.iter().map(|damage| damage.location).collect();
                told.sort_unstable();
                let changed = differing(&sound, &image);
                assert!(changed.iter().all(|block| told.contains(block)), "{kind_name} on {target_name}");
                if !reseal {
                    assert_eq!(changed, told, "{kind_name} on {target_name}");
                    assert!(
                        checked(&image).findings.worst() >= Some(Severity::NonFatal),
                        "{kind_name} on {target_name}"
                    );
                }
                for damage in damage.iter().filter(|_| reseal) {
                    assert!(block::identify(&damage.content).is_some(), "{kind_name} on {target_name}");
                }
                done += 1;
            }
        }
    }
    assert!(done > 150, "only {done} combinations");
}

#[test]
fn the_same_seed_does_the_same() {
    let sound = pool();
    let wanted = |seed| BlockDamage { kind: Kind::BitRot, target: Target::Any, count: 5, reseal: true, seed };
    let blocks = |seed| -> Vec<_> {
        damage_blocks(&sound, &wanted(seed)).unwrap().into_iter().map(|d| (d.location, d.content, d.what)).collect()
    };
    assert_eq!(blocks(1), blocks(1));
    assert_ne!(blocks(1), blocks(2));
}

#[test]
fn a_block_can_be_named_where_nothing_is_sound() {
    let nothing = MemorySource::new(10);
    let named = BlockDamage { kind: Kind::Noise, target: Target::Block(BlockNr(7)), count: 1, reseal: false, seed: 0 };
    assert_eq!(damage_blocks(&nothing, &named).unwrap()[0].location, BlockNr(7));
    let any = BlockDamage { target: Target::Any, ..named };
    assert!(matches!(damage_blocks(&nothing, &any), Err(DamageError::Unsound)));
    let beyond = BlockDamage { target: Target::Block(BlockNr(10)), ..named };
    assert!(matches!(damage_blocks(&nothing, &beyond), Err(DamageError::Read(_))));
    assert!(matches!(override_roots(&nothing, &Override::default()), Err(DamageError::Superblock(_))));
}

#[test]
fn leaks_are_leaks_and_nothing_else() {
    let sound = pool();
    for (expected, actual, code) in [
        (0, 1, Code::MetadataLeak),
        (0, 2, Code::MetadataLeak),
        (0, 9, Code::MetadataLeak),
        (1, 3, Code::MetadataLeak),
        (1, 0, Code::MetadataCountLow),
        (2, 1, Code::MetadataCountLow),
    ] {
        let leaks = Leaks { expected, actual, nr_blocks: 3, seed: 5 };
        let mut image = sound.clone();
        write(&mut image, &create_leaks(&sound, &leaks).unwrap()).unwrap();
        let report = checked(&image);
        let totals = report.metadata.unwrap();
        let (leaked, low) = if code == Code::MetadataLeak { (3, 0) } else { (0, 3) };
        assert_eq!((totals.leaked, totals.counted_low), (leaked, low), "{expected} to {actual}");
        let codes: Vec<Code> = report.findings.counts().keys().copied().collect();
        assert_eq!(codes, [code], "{expected} to {actual}");
    }
    let many = Leaks { expected: 7, actual: 1, nr_blocks: 1, seed: 0 };
    assert!(matches!(create_leaks(&sound, &many), Err(DamageError::TooFew { found: 0, wanted: 1 })));
    let large = Leaks { expected: 0, actual: 3, nr_blocks: 1000, seed: 0 };
    assert!(matches!(create_leaks(&sound, &large), Err(DamageError::NoRoom { wanted: 1000, .. })));
}

#[test]
fn roots_are_overridden() {
    let sound = pool();
    let roots = Override { mapping_root: Some(3), ..Override::default() };
    let mut image = sound.clone();
    let damage = override_roots(&sound, &roots).unwrap();
    assert!(damage[0].what.contains("mapping root 3 instead of"));
    write(&mut image, &damage).unwrap();
    assert_eq!(differing(&sound, &image), [BlockNr(0)]);
    assert_eq!(checked(&image).superblock.unwrap().mapping_root.get(), 3);
}
