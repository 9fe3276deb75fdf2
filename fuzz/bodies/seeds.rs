//! Where each target begins: real blocks, packs, documents and recordings.

use super::{overlay, packs};
use dmeta::base::{BlockNr, NoProgress};
use dmeta::block::BlockSource;
use dmeta::format::block::{BlockKind, identify};
use dmeta::pack::encode;
use dmeta::replay::trace::{generate, parse};
use dmeta::thin::dump::{DumpOptions, dump};

const BLKPARSE: &str = include_str!("../../testdata/replay/thin.blkparse");
const FIO: [&str; 2] =
    [include_str!("../../testdata/replay/fio-v2.iolog"), include_str!("../../testdata/replay/fio-v3.iolog")];
const VERBS: &str = "thin-trace 1\nH clock=us source=mine\nS a mode=open dev=2\nS b mode=closed depth=4\n\
    0 a write off=0 len=8 flags=fua\n+1.5 a read off=8 len=8\n- b create dev=7\n- b snap dev=8 origin=7\n\
    - b delete dev=8 policy=batch(16)+sleep(1ms)\n9 a flush\n10 a discard off=0 len=128\n- b trim-pool\n- b msnap\n- b mrelease\n\
    - b commit\n- b sleep us=5\n- b mark name=x\n11 a wait name=x\n12 a expect lat=3\n12 a lookup off=9 # why not\n";

/// Inputs to begin with.
pub fn seeds(target: &str) -> Vec<Vec<u8>> {
    match target {
        "array" => {
            (0..6).map(|size| [&[size, 0, 0, 0, 0, 10, 0, 0, 0, 3, 0, 0, 0, 8][..], &[0x5a; 90]].concat()).collect()
        }
        "image" => vec![vec![0], vec![1], vec![0, 3, 14, 5, 40], vec![1, 2, 0x80, 9, 0, 3, 1, 2, 3]],
        "node" => [blocks(BlockKind::Node, true), changes()].concat(),
        "pack" => pack(),
        "space_map" => [blocks(BlockKind::Bitmap, false), changes()].concat(),
        "superblock" => [blocks(BlockKind::ThinSuperblock, false), changes()].concat(),
        "trace" => traces(),
        "undo" => vec![[&[1][..], &packs::undo_seed()].concat(), vec![1]],
        "xml" => documents(),
        other => panic!("there is no target {other}"),
    }
}

/// Single blocks, with the choice of a value size before them.
fn blocks(wanted: BlockKind, choices: bool) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for base in overlay::bases() {
        for (location, _) in base.blocks.iter().filter(|(_, kind)| *kind == wanted).take(6) {
            let block = base.image.block(*location);
            let choices: &[u8] = if choices { &[0, 2, 6, 8] } else { &[0] };
            found.extend(choices.iter().map(|choice| [&[*choice][..], &block].concat()));
        }
    }
    found
}

fn changes() -> Vec<Vec<u8>> {
    vec![
        vec![1, 0],
        vec![1, 1],
        vec![1, 0, 2, 14, 3, 9],
        vec![1, 0, 1, 18, 4, 2, 0, 5, 21, 7],
        vec![1, 1, 0, 8, 20, 0, 1],
    ]
}

fn pack() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for base in overlay::bases() {
        let mut packed = vec![0];
        encode(&base.image, &mut packed, 1).unwrap();
        seeds.push(packed);
    }
    // A frame with one bitmap as it is: block number, literal of 4096 bytes.
    let image = &overlay::bases()[1].image;
    let bitmap = (0..image.nr_blocks()).find(|at| identify(&image.block(*at)) == Some(BlockKind::Bitmap)).unwrap();
    let literal = [&[1, 20, 11, 16][..], &bitmap.to_le_bytes(), &[0xa2, 0, 16], &image.block(bitmap)].concat();
    assert_eq!(literal.len(), 2 + 2 + 0x100b);
    seeds.push(literal);
    seeds
}

fn documents() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for flat in [false, true] {
        for base in overlay::bases() {
            let mut text = Vec::new();
            let image = overlay::memory(&base.image).unwrap();
            assert!(image.get(BlockNr(0)).is_some());
            dump(&image, &DumpOptions { flat, ..DumpOptions::default() }, &mut text, &NoProgress).unwrap();
            text.truncate(6000);
            let whole = text.ends_with(b"</superblock>\n");
            seeds.push(if whole { text } else { [&text[..], b"/></device></superblock>"].concat() });
        }
    }
    let small = "<?xml version='1.0'?><superblock uuid=\"\" time=\"1\" transaction=\"2\" flags=\"0\" version=\"2\" \
        data_block_size=\"128\" nr_data_blocks=\"100\"><!-- c --><def name=\"a\"><range_mapping origin_begin=\"0\" \
        data_begin=\"3\" length=\"5\" time=\"0\"/></def><device dev_id=\"1\" mapped_blocks=\"6\" transaction=\"0\" \
        creation_time=\"0\" snap_time=\"1\"><ref name=\"a\"/><single_mapping origin_block=\"9\" data_block=\"&#57;\" \
        time=\"1\"></single_mapping></device></superblock>";
    seeds.push(small.into());
    seeds
}

fn traces() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = FIO.iter().map(|text| head(text, 30)).collect();
    seeds.push(head(BLKPARSE, 30));
    assert!(parse(VERBS, false).is_ok());
    seeds.push(VERBS.into());
    let made = generate::NAMES.iter().filter_map(|(name, _)| generate::generate(name, 1, 128, 12));
    seeds.extend(made.map(|trace| head(&trace.text(), 30)));
    seeds
}

fn head(text: &str, lines: usize) -> Vec<u8> {
    text.lines().take(lines).collect::<Vec<_>>().join("\n").into_bytes()
}
