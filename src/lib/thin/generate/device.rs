//! The mapping tree of one device, from which snapshots branch off.

use super::{GenerateError, GenerateOptions};
use crate::base::{BlockNr, DataBlock, Random};
use crate::format::mapping;
use crate::format::node::{Node, max_entries};
use crate::pdata::build::{Child, NodeBuf, NodeSink, Spine};
use crate::pdata::commit::{CommitError, ImageWriter};
use crate::pdata::counts::{Counts, Tally};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

/// Mappings that a leaf has room for.
const LEAF: u64 = max_entries(8) as u64;
/// Leaves below one node: more than half of what it has room for, and no two levels differ in height.
const GROUP: usize = 200;
/// Runs whose data blocks are dealt out together, in another order.
const DEAL: usize = 64;

/// Leaves with one parent, which is shared while none of them changes.
#[derive(Debug)]
struct Group {
    /// The parent; the leaf itself where it is the only one of its device.
    node: Child,
    leaves: Vec<Child>,
}

/// A device's mappings.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    pub(super) root: BlockNr,
    groups: Vec<Rc<Group>>,
}

/// Where everything is written, and what has been dealt out.
pub(super) struct Workshop<'w> {
    pub(super) image: ImageWriter<'w>,
    pub(super) random: Random,
    pub(super) counts: Counts,
    pub(super) tally: Tally,
    /// The next data block that nothing is mapped to.
    pub(super) next_data: u64,
    pub(super) time: u32,
    spine: Spine,
    /// In a plan, which writes nothing: the leaves that may be changed, by block.
    kept: Option<HashMap<BlockNr, Vec<(u64, u64)>>>,
}

impl<'w> Workshop<'w> {
    pub(super) fn new(image: ImageWriter<'w>, options: &GenerateOptions, countable: u64) -> Self {
        let changes = options.change > 0 && (options.snapshots > 0 || options.metadata_snapshot);
        Workshop {
            kept: (changes && image.is_plan()).then(HashMap::new),
            image,
            random: Random::new(options.seed),
            counts: Counts::new(countable),
            tally: Tally::default(),
            next_data: 0,
            time: 0,
            spine: Spine::default(),
        }
    }

    /// Writes a leaf and counts what it maps.
    fn leaf(&mut self, node: &mut NodeBuf<8>) -> Result<Child, CommitError> {
        let (values, _) = node.value_bytes().as_chunks::<8>();
        self.counts.add(&mut self.tally, values.iter().map(|value| u64::from_le_bytes(*value) >> 24));
        let child = Child { first_key: node.first_key(), len: node.len() as u32, block: self.image.node(node)? };
        if let Some(kept) = &mut self.kept {
            let entry = |index| node.entry(index);
            let entries = (0..node.len()).map(entry).map(|(key, value)| (key, u64::from_le_bytes(value)));
            kept.insert(child.block, entries.collect());
        }
        node.clear();
        Ok(child)
    }

    /// A device of its own.
    pub(super) fn tree(&mut self, options: &GenerateOptions) -> Result<Tree, GenerateError> {
        let mut runs = Runs { run_length: options.run_length, key: 0, ready: VecDeque::new() };
        let mut leaves = Vec::new();
        let mut node = NodeBuf::new_leaf();
        for size in leaf_sizes(options, &mut self.random) {
            while (node.len() as u64) < size {
                let (key, data) = runs.next(self);
                node.push(key, &mapping::pack(DataBlock(data), self.time).to_le_bytes());
            }
            leaves.push(self.leaf(&mut node)?);
        }
        if leaves.is_empty() {
            return Ok(Tree { root: self.image.node(&mut node)?, groups: Vec::new() });
        }
        let mut groups = Vec::new();
        let nr_groups = leaves.len().div_ceil(GROUP);
        for index in 0..nr_groups {
            // All of nearly the same size, so that none is too small.
            let part = leaves.len() * index / nr_groups..leaves.len() * (index + 1) / nr_groups;
            groups.push(Rc::new(self.group(leaves[part].to_vec())?));
        }
        let root = self.root(&groups)?;
        Ok(Tree { root, groups })
    }

    fn group(&mut self, leaves: Vec<Child>) -> Result<Group, CommitError> {
        for leaf in &leaves {
            self.spine.push(*leaf, &mut self.image)?;
        }
        let block = self.spine.finish(&mut self.image)?;
        let first_key = leaves.first().map_or(0, |leaf| leaf.first_key);
        Ok(Group { node: Child { first_key, block, len: leaves.len() as u32 }, leaves })
    }

    fn root(&mut self, groups: &[Rc<Group>]) -> Result<BlockNr, CommitError> {
        for group in groups {
            self.spine.push(group.node, &mut self.image)?;
        }
        self.spine.finish(&mut self.image)
    }

    /// Overwrites parts of some leaves, each with this probability in percent. `tree` must be shared with a
    /// snapshot, which keeps what is replaced.
    pub(super) fn change(&mut self, tree: &Tree, percent: u64) -> Result<Tree, GenerateError> {
        let mut groups = Vec::new();
        let mut changed = false;
        for group in &tree.groups {
            let hit: Vec<bool> = group.leaves.iter().map(|_| self.random.percent(percent)).collect();
            if !hit.contains(&true) {
                groups.push((Rc::clone(group), false));
                continue;
            }
            changed = true;
            let mut leaves = Vec::new();
            for (leaf, hit) in group.leaves.iter().zip(hit) {
                if hit {
                    leaves.push(self.overwrite(leaf)?);
                } else {
                    // A single leaf is its own group, and has one parent or none.
                    self.image.share(leaf.block);
                    leaves.push(*leaf);
                }
            }
            groups.push((Rc::new(self.group(leaves)?), true));
        }
        if !changed {
            self.image.share(tree.root);
            return Ok(tree.clone());
        }
        groups.iter().filter(|(_, new)| !new).for_each(|(group, _)| self.image.share(group.node.block));
        let groups: Vec<Rc<Group>> = groups.into_iter().map(|(group, _)| group).collect();
        let root = self.root(&groups)?;
        Ok(Tree { root, groups })
    }

    /// A copy of a leaf in which some mappings lead to other data blocks.
    fn overwrite(&mut self, leaf: &Child) -> Result<Child, GenerateError> {
        let old = match &self.kept {
            Some(kept) => kept.get(&leaf.block).cloned().unwrap_or_default(),
            None => {
                let block = self.image.read_back(leaf.block)?;
                let Ok(node) = Node::trusting_checksum(&block, 8) else { unreachable!("it was written as a node") };
                entries(&node)
            }
        };
        let begin = self.random.below(leaf.len.into());
        let length = self.random.within(1, u64::from(leaf.len) - begin);
        let mut new = NodeBuf::new_leaf();
        for (index, (key, value)) in (0..).zip(old) {
            let value = if (begin..begin + length).contains(&index) {
                self.next_data += 1;
                mapping::pack(DataBlock(self.next_data - 1), self.time)
            } else {
                value
            };
            new.push(key, &value.to_le_bytes());
        }
        Ok(self.leaf(&mut new)?)
    }
}

/// Keys and values of a leaf.
fn entries(node: &Node<'_>) -> Vec<(u64, u64)> {
    node.keys().iter().zip(node.values_u64()).map(|(key, value)| (key.get(), value.get())).collect()
}

/// How many mappings the leaves of a device get.
fn leaf_sizes(options: &GenerateOptions, random: &mut Random) -> Vec<u64> {
    let (least, most) = (*options.leaf_fill.start() * LEAF / 100, *options.leaf_fill.end() * LEAF / 100);
    let mut sizes = Vec::new();
    let mut left = options.mappings;
    while left > 0 {
        let mut size = random.within(least, most).min(left);
        let rest = left - size;
        if rest > 0 && rest < least {
            // Too little for a leaf of its own.
            size = if left <= LEAF { left } else { left / 2 };
        }
        sizes.push(size);
        left -= size;
    }
    sizes
}

/// Mappings in ascending order, in runs; between runs there are holes now and then, and data blocks jump.
struct Runs {
    run_length: u64,
    key: u64,
    /// First key, first data block and length.
    ready: VecDeque<(u64, u64, u64)>,
}

impl Runs {
    fn next(&mut self, workshop: &mut Workshop<'_>) -> (u64, u64) {
        loop {
            match self.ready.front_mut() {
                Some((key, data, left)) if *left > 0 => {
                    let mapping = (*key, *data);
                    (*key, *data, *left) = (*key + 1, *data + 1, *left - 1);
                    return mapping;
                }
                Some(_) => drop(self.ready.pop_front()),
                None => self.deal(workshop),
            }
        }
    }

    fn deal(&mut self, workshop: &mut Workshop<'_>) {
        let random = &mut workshop.random;
        let lengths: Vec<u64> = (0..DEAL).map(|_| random.within(1, 2 * self.run_length - 1)).collect();
        let mut order: Vec<usize> = (0..DEAL).collect();
        random.shuffle(&mut order);
        let mut data = vec![0; DEAL];
        for index in order {
            data[index] = workshop.next_data;
            workshop.next_data += lengths[index];
        }
        for (length, data) in lengths.into_iter().zip(data) {
            if random.percent(30) {
                self.key += random.within(1, 2 * self.run_length);
            }
            self.ready.push_back((self.key, data, length));
            self.key += length;
        }
    }
}
