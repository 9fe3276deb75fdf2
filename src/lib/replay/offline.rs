//! What a delete costs when the pool is not in service, measured on the machine that this runs on.

use crate::base::{NoProgress, ThinId};
use crate::block::BlockSource;
use crate::block::memory::MemorySource;
use crate::thin::delete::{DeleteError, DeleteOptions, Precheck, Target, Wanted, plan_part, precheck};
use serde::Serialize;
use std::time::Instant;

/// What deleting devices at once does, as `thin_delete` does it, but written to memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Offline {
    /// Checking the metadata first, in seconds.
    pub check: f64,
    /// Reading what is needed, and working out what the metadata looks like without them, in seconds.
    pub plan: f64,
    /// Handing the changed blocks over, in seconds. A device takes its time for them as well, and for two flushes.
    pub commit: f64,
    /// Metadata blocks that are written.
    pub blocks: u64,
    /// Changes one after the other that it takes: more than one where there is little room.
    pub changes: u64,
    /// Threads that were used.
    pub threads: usize,
}

impl Offline {
    /// All of it, in seconds.
    pub fn total(&self) -> f64 {
        self.check + self.plan + self.commit
    }
}

/// Deletes devices from a copy that is thrown away, and says how long that took.
///
/// # Errors
/// Where the metadata is damaged, there is no such device, or there is no room.
pub fn measure(source: &dyn BlockSource, devices: &[ThinId]) -> Result<Offline, DeleteError> {
    let begin = Instant::now();
    precheck(source, Precheck::Full, &NoProgress)?;
    let check = begin.elapsed().as_secs_f64();
    let target = Target::read(source, &NoProgress)?;
    let mut offline = Offline { check, threads: rayon::current_num_threads(), ..Offline::default() };
    let mut scratch = MemorySource::new(source.nr_blocks());
    let wanted = Wanted::Delete(devices.iter().map(|id| id.0..=id.0).collect());
    let victims = target.select(&wanted, false)?;
    let begin = Instant::now();
    let (deletion, rest) = plan_part(&target, &victims, DeleteOptions::default(), &NoProgress)?;
    offline.plan = begin.elapsed().as_secs_f64();
    (offline.blocks, offline.changes) = (deletion.locations().len() as u64 + 1, 1 + u64::from(!rest.is_empty()));
    let begin = Instant::now();
    deletion.commit(&mut scratch)?;
    offline.commit = begin.elapsed().as_secs_f64();
    Ok(offline)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::BlockNr;
    use crate::replay::scenario::delete;

    #[test]
    fn the_source_stays_as_it_is_and_what_is_missing_is_told() {
        let source = delete::image(512, 50, 1).unwrap();
        let source: &dyn BlockSource = &source;
        let blocks = || (0..source.nr_blocks()).map(|block| source.read(BlockNr(block)).ok()).collect::<Vec<_>>();
        let before = blocks();
        let offline = measure(source, &[ThinId(1), ThinId(2)]).unwrap();
        assert!(offline.blocks > 3 && offline.changes == 1 && offline.total() > 0.0, "{offline:?}");
        assert!(before == blocks());
        assert!(matches!(measure(source, &[ThinId(77)]), Err(DeleteError::Unknown(_))));
    }
}
