//! The pool around the devices: details, snapshots, the metadata snapshot, the superblock.

use super::device::{Tree, Workshop};
use super::{GenerateError, GenerateOptions, Generated};
use crate::base::BlockNr;
use crate::block::BlockOutput;
use crate::format::details::{DETAILS_SIZE, DeviceDetails};
use crate::format::space_map::{ENTRIES_PER_BITMAP, MAX_METADATA_BLOCKS, SpaceMapRoot};
use crate::format::superblock::{DEVICE_ID_LIMIT, FLAG_NEEDS_CHECK, THIN_MAGIC, TIME_LIMIT, ThinSuperblock, VERSION};
use crate::format::{BLOCK_SECTORS, block};
use crate::pdata::build::{NothingShared, TreeBuilder};
use crate::pdata::commit::{CommitError, DataCounts, ImageWriter, SealedImage};
use zerocopy::byteorder::little_endian::{U32, U64};

/// A device and where its mappings are.
struct Member {
    details: DeviceDetails,
    tree: Tree,
}

impl Member {
    fn new(tree: Tree, options: &GenerateOptions, time: u32) -> Member {
        let details = DeviceDetails {
            mapped_blocks: U64::new(options.mappings),
            transaction_id: U64::new(options.transaction),
            creation_time: U32::new(time),
            snapshotted_time: U32::new(time),
        };
        Member { details, tree }
    }
}

pub(super) fn write(output: &mut dyn BlockOutput, options: &GenerateOptions) -> Result<Generated, GenerateError> {
    let countable = countable(options)?;
    // More than a metadata device could describe is never counted.
    let most = output.nr_blocks().min(MAX_METADATA_BLOCKS) * ENTRIES_PER_BITMAP;
    if countable.max(options.nr_data_blocks.unwrap_or(0)) > most {
        return Err(CommitError::NoSpace { nr_blocks: output.nr_blocks() }.into());
    }
    let plan = build(ImageWriter::plan(output.nr_blocks()), countable, options)?;
    let (needed, present) = (plan.sealed.nr_needed(), output.nr_blocks());
    if needed > present {
        return Err(CommitError::TooSmall { needed, present }.into());
    }
    let Built { sealed, superblock, made } = build(ImageWriter::begin(output)?, countable, options)?;
    sealed.commit(&superblock.to_block(BlockNr(0)))?;
    Ok(made)
}

/// A pool of which only the superblock is not written.
struct Built<'w> {
    sealed: SealedImage<'w>,
    superblock: ThinSuperblock,
    made: Generated,
}

fn build<'w>(image: ImageWriter<'w>, countable: u64, options: &GenerateOptions) -> Result<Built<'w>, GenerateError> {
    let mut workshop = Workshop::new(image, options, countable);
    let mut members = Vec::new();
    for _ in 0..options.devices {
        let origin = Member::new(workshop.tree(options)?, options, workshop.time);
        members.push(origin);
    }
    for _ in 0..options.snapshots {
        for origin in 0..options.devices as usize {
            snapshot(&mut workshop, &mut members, origin, options)?;
        }
    }
    let held_root = match options.metadata_snapshot {
        true => Some(hold(&mut workshop, &mut members, options)?),
        false => None,
    };
    let (mapping_root, details_root) = trees(&mut workshop.image, &members)?;
    let data_blocks = workshop.next_data;
    let nr_data_blocks = options.nr_data_blocks.unwrap_or(data_blocks);
    if nr_data_blocks < data_blocks {
        return Err(GenerateError::DataBlocks { needed: data_blocks, given: nr_data_blocks });
    }
    let Workshop { image, counts, mut tally, time, .. } = workshop;
    counts.settle(&mut tally);
    let sealed = image.seal(Some(DataCounts { nr_blocks: nr_data_blocks, counts: &counts }))?;
    let roots = sealed.roots();
    let Some(data_map) = roots.data.clone() else { unreachable!("pools have a data space map") };
    let superblock = ThinSuperblock {
        flags: U32::new(if options.needs_check { FLAG_NEEDS_CHECK } else { 0 }),
        held_root: U64::new(held_root.unwrap_or(BlockNr(0)).0),
        data_space_map: data_map,
        metadata_space_map: roots.metadata.clone(),
        metadata_nr_blocks: roots.metadata.nr_blocks,
        ..bare_superblock(options, time, mapping_root, details_root)
    };
    let devices = members.len() as u64;
    let (mappings, metadata_blocks) = (devices * options.mappings, sealed.nr_needed());
    Ok(Built { sealed, superblock, made: Generated { devices, mappings, data_blocks, metadata_blocks } })
}

/// A bound for the data blocks that will be used.
fn countable(options: &GenerateOptions) -> Result<u64, GenerateError> {
    let devices = u128::from(options.devices) * (u128::from(options.snapshots) + 1);
    if devices > u128::from(DEVICE_ID_LIMIT) - 1 || options.devices * options.snapshots >= u64::from(TIME_LIMIT) - 1 {
        return Err(GenerateError::Options("a pool can't have so many devices".into()));
    }
    // Runs are dealt out 64 at a time, and not all may be used.
    let slack = u128::from(options.run_length) * 128;
    let changes = u128::from(options.snapshots) + u128::from(options.metadata_snapshot);
    let one = (u128::from(options.mappings) + slack) + changes * u128::from(options.mappings);
    let all = u128::from(options.devices) * one;
    match u64::try_from(all) {
        Ok(all) if all < 1 << 40 => Ok(all),
        _ => Err(GenerateError::Options("a pool can't have so many mappings".into())),
    }
}

/// A snapshot of a device, which is changed afterwards (docs/format.md 4.4).
fn snapshot(
    workshop: &mut Workshop<'_>,
    members: &mut Vec<Member>,
    origin: usize,
    options: &GenerateOptions,
) -> Result<(), GenerateError> {
    workshop.time += 1;
    let old = members[origin].tree.clone();
    let new = workshop.change(&old, options.change)?;
    members[origin].tree = new;
    members[origin].details.snapshotted_time = U32::new(workshop.time);
    members.push(Member::new(old, options, workshop.time));
    Ok(())
}

/// Keeps the state in a metadata snapshot, and changes every device (docs/format.md 4.5).
fn hold(
    workshop: &mut Workshop<'_>,
    members: &mut [Member],
    options: &GenerateOptions,
) -> Result<BlockNr, GenerateError> {
    let (mapping_root, details_root) = trees(&mut workshop.image, members)?;
    let superblock = bare_superblock(options, workshop.time, mapping_root, details_root);
    let location = workshop.image.add(|location| superblock.to_block(location))?;
    for member in members {
        member.tree = workshop.change(&member.tree, options.change)?;
    }
    Ok(location)
}

/// The upper mapping tree and the details tree. Device ids begin with 1.
fn trees(image: &mut ImageWriter<'_>, members: &[Member]) -> Result<(BlockNr, BlockNr), CommitError> {
    let mut roots = TreeBuilder::<8>::new();
    let mut details = TreeBuilder::<DETAILS_SIZE>::new();
    for (id, member) in (1..).zip(members) {
        roots.push(id, &member.tree.root.0.to_le_bytes(), image)?;
        details.push(id, &zerocopy::transmute!(member.details), image)?;
    }
    let roots = roots.finish(&mut NothingShared, image)?;
    Ok((roots, details.finish(&mut NothingShared, image)?))
}

/// A superblock without space maps, as a metadata snapshot has it.
fn bare_superblock(
    options: &GenerateOptions,
    time: u32,
    mapping_root: BlockNr,
    details_root: BlockNr,
) -> ThinSuperblock {
    let zero = [0; block::BLOCK_SIZE];
    let none: SpaceMapRoot = ThinSuperblock::view(&zero).data_space_map.clone();
    ThinSuperblock {
        magic: U64::new(THIN_MAGIC),
        version: U32::new(VERSION),
        time: U32::new(time),
        transaction_id: U64::new(options.transaction),
        data_space_map: none.clone(),
        metadata_space_map: none,
        mapping_root: U64::new(mapping_root.0),
        details_root: U64::new(details_root.0),
        data_block_size: U32::new(options.data_block_size),
        metadata_block_size: U32::new(BLOCK_SECTORS as u32),
        ..ThinSuperblock::view(&zero).clone()
    }
}
