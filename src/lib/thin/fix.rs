//! Fixes in place: leaks, stale numbers, the flag that asks for a check; and both space maps anew.
//!
//! Only what a whole check has counted is written, only into blocks that are free in the committed state, and the
//! superblock last.

use super::check::Counted;
use super::report::Report;
use crate::base::{BlockNr, Code, Cure, Severity};
use crate::block::{BlockOutput, BlockSource};
use crate::format::Block;
use crate::format::superblock::{FLAG_NEEDS_CHECK, ThinSuperblock};
use crate::pdata::commit::{
    CommitError, DataCounts, SealedTransaction, SpaceMapRoots, Transaction, replace_superblock,
};
use std::collections::BTreeSet;
use zerocopy::byteorder::little_endian::U32;

/// How much may be put right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FixOptions {
    /// Leaks and stale numbers in the space maps.
    pub leaks: bool,
    /// Counts that are too low, and space maps that cannot be read, too.
    pub space_maps: bool,
    /// The flag that asks for a check.
    pub needs_check: bool,
}

/// Why nothing is put right.
#[derive(Debug, thiserror::Error)]
pub enum FixError {
    /// There is damage that this does not cure.
    #[error("there is damage that cannot be mended in place: nothing was changed")]
    OtherDamage,
    /// There is no room for the change, or writing failed.
    #[error(transparent)]
    Commit(#[from] CommitError),
}

/// A fix that lacks nothing but to be written.
#[derive(Debug)]
pub struct Fix {
    maps: Option<SealedTransaction>,
    superblock: Box<Block>,
    clears_flag: bool,
    /// Kinds of findings that new space maps put right.
    cured: BTreeSet<Code>,
}

/// Puts together what `options` allows and `report` asks for; `None` where there is nothing to do.
///
/// `counted` is what the same check has counted; without it only the flag can be cleared.
///
/// # Errors
/// Where there is other damage, or no room. Nothing is written here.
pub fn plan(
    source: &dyn BlockSource,
    report: &Report,
    counted: Option<&Counted>,
    options: FixOptions,
) -> Result<Option<Fix>, FixError> {
    let Some(superblock) = &report.superblock else { return Err(FixError::OtherDamage) };
    let curable = |code: &Code| match report.cure(*code) {
        Cure::AutoRepair => options.leaks || options.space_maps,
        Cure::RepairSpaceMaps => options.space_maps || options.leaks && code.problem().severity < Severity::Fatal,
        _ => false,
    };
    let codes = || report.findings.counts().keys();
    if codes().any(|code| code.problem().severity == Severity::Fatal && !curable(code)) {
        return Err(FixError::OtherDamage);
    }
    let clears_flag = options.needs_check && superblock.needs_check();
    let mut fixed = superblock.clone();
    if clears_flag {
        fixed.flags = U32::new(fixed.flags.get() & !FLAG_NEEDS_CHECK);
    }
    let mut maps = None;
    if let Some(counted) = counted.filter(|_| codes().any(curable)) {
        let sealed = space_maps(source, superblock, counted)?;
        if let Some(data) = &sealed.roots().data {
            fixed.data_space_map = data.clone();
        }
        fixed.metadata_space_map = sealed.roots().metadata.clone();
        maps = Some(sealed);
    }
    if maps.is_none() && !clears_flag {
        return Ok(None);
    }
    let cured = codes().filter(|code| maps.is_some() && curable(code)).copied().collect();
    Ok(Some(Fix { maps, superblock: fixed.to_block(BlockNr(0)), clears_flag, cured }))
}

fn space_maps(
    source: &dyn BlockSource,
    superblock: &ThinSuperblock,
    counted: &Counted,
) -> Result<SealedTransaction, CommitError> {
    let committed = SpaceMapRoots {
        data: Some(superblock.data_space_map.clone()),
        metadata: superblock.metadata_space_map.clone(),
    };
    let data = DataCounts { nr_blocks: counted.data.nr_blocks(), counts: &counted.data };
    Transaction::begin(source, committed, &counted.metadata).seal(Some(data))
}

impl Fix {
    /// The blocks that will be written beside the superblock.
    pub fn locations(&self) -> Vec<BlockNr> {
        self.maps.iter().flat_map(SealedTransaction::locations).collect()
    }

    /// The superblock that will be written.
    pub fn superblock(&self) -> &Block {
        &self.superblock
    }

    /// What it does, in words.
    pub fn told(&self) -> &'static str {
        match (self.maps.is_some(), self.clears_flag) {
            (true, true) => "the space maps were put right, and needs_check was cleared",
            (true, false) => "the space maps were put right",
            (false, _) => "needs_check was cleared",
        }
    }

    /// Whether a finding of this code is cured by it.
    pub fn cures(&self, code: Code) -> bool {
        match code.problem().cure {
            Cure::ClearFlag => self.clears_flag,
            _ => self.cured.contains(&code),
        }
    }

    /// Writes it. After this the change is made; after an error all is as it was, or the change is made.
    ///
    /// # Errors
    /// Where writing fails.
    pub fn commit(self, output: &mut dyn BlockOutput) -> Result<(), CommitError> {
        match self.maps {
            Some(maps) => maps.commit(output, &self.superblock),
            None => replace_superblock(output, &self.superblock),
        }
    }
}

#[cfg(test)]
mod tests;
