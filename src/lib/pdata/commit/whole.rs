//! Writes an image that is there as a whole, whatever kind of metadata it holds.

use super::CommitError;
use crate::base::BlockNr;
use crate::block::memory::MemorySource;
use crate::block::{BlockOutput, BlockSource};
use crate::format::{BLOCK_SIZE, Block};

/// Puts every block of `image` in its place. Block 0 is overwritten first and written last, so that until all else is
/// durable there is no valid superblock. What lies past the end of `image` stays as it is.
///
/// # Errors
/// Where there are too few blocks, before anything is written; or where writing fails.
pub fn write_whole(image: &MemorySource, output: &mut dyn BlockOutput) -> Result<(), CommitError> {
    let (needed, present) = (BlockSource::nr_blocks(image), output.nr_blocks());
    if present < needed {
        return Err(CommitError::TooSmall { needed, present });
    }
    let zeros: Block = [0; BLOCK_SIZE];
    output.write(BlockNr(0), &zeros)?;
    output.flush()?;
    for location in (1..needed).map(BlockNr) {
        output.write(location, image.get(location).unwrap_or(&zeros))?;
    }
    output.flush()?;
    output.write(BlockNr(0), image.get(BlockNr(0)).unwrap_or(&zeros))?;
    Ok(output.flush()?)
}

#[cfg(test)]
mod tests {
    use super::write_whole;
    use crate::base::BlockNr;
    use crate::block::memory::MemorySource;
    use crate::block::testing::{Applied, CrashingOutput};
    use crate::block::{BlockOutput, BlockSource};
    use crate::format::BLOCK_SIZE;
    use crate::pdata::commit::CommitError;

    const NEW: u64 = 9;

    fn image(nr_blocks: u64, fill: u8) -> MemorySource {
        let mut image = MemorySource::new(nr_blocks);
        // Every third block is one of zeros, which takes no memory.
        for location in (0..nr_blocks).filter(|location| location % 3 < 2) {
            image.put(BlockNr(location), &[fill; BLOCK_SIZE]).unwrap();
        }
        image
    }

    fn holds(found: &MemorySource, wanted: &MemorySource, from: u64) -> bool {
        (from..NEW).map(BlockNr).all(|location| found.read(location).unwrap() == wanted.read(location).unwrap())
    }

    #[test]
    fn a_superblock_is_there_only_with_all_that_it_leads_to() {
        let (old, new) = (image(NEW + 3, 1), image(NEW, 2));
        let mut output = CrashingOutput::new(old.clone());
        write_whole(&new, &mut output).unwrap();
        let (mut before, mut nothing, mut after) = (0, 0, 0);
        for stop in 0..=output.log().len() {
            for fate in [Applied::Not, Applied::Whole] {
                let found = output.image_after(stop, |index| if index % 2 == 0 { Applied::Whole } else { fate });
                match found.read(BlockNr(0)).unwrap()[0] {
                    0 => nothing += 1,
                    1 => {
                        assert!(holds(&found, &old, 0));
                        before += 1;
                    }
                    _ => {
                        assert!(holds(&found, &new, 0));
                        after += 1;
                    }
                }
                assert_eq!(found.read(BlockNr(NEW)).unwrap(), old.read(BlockNr(NEW)).unwrap());
            }
        }
        assert!(before > 0 && nothing > 0 && after > 0, "{before}, {nothing}, {after}");
    }

    #[test]
    fn too_small_an_output_stays_as_it_was() {
        let mut output = image(NEW - 1, 1);
        let refused = write_whole(&image(NEW, 2), &mut output);
        assert!(matches!(refused, Err(CommitError::TooSmall { needed: NEW, present: 8 })));
        assert_eq!(BlockOutput::nr_blocks(&output), NEW - 1);
        assert_eq!(output.read(BlockNr(0)).unwrap()[0], 1);
    }
}
