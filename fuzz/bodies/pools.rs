//! Bodies for whole pools: everything that reads one, and what writers make of it.

use super::faults::faults;
use super::image::Image;
use super::model::{Model, ModelDevice};
use super::{Bytes, overlay};
use dmeta::base::{NoProgress, ThinId};
use dmeta::block::memory::MemorySource;
use dmeta::thin::check::{CheckOptions, check_and_count};
use dmeta::thin::delete::{DeleteOptions, Precheck, Strategy, Target, plan, precheck};
use dmeta::thin::dump::{DumpOptions, dump_salvaged};
use dmeta::thin::fix::{self, FixOptions};
use dmeta::thin::repair::repair;
use dmeta::thin::salvage::{SalvageOptions, candidates_json, list_roots};
use std::collections::BTreeSet;

/// Any block of a pool changed: check, dump, roots, salvage, repair, delete, mend.
pub fn image(data: &[u8]) {
    let image = overlay::image(&mut Bytes::new(data), |_| true);
    let found = faults(&image);
    assert!(found.is_empty(), "{}", found.join("\n"));
    candidates_json(&list_roots(&image, &NoProgress)).to_string();
    let mut text = Vec::new();
    let salvage = SalvageOptions { data_block_size: Some(128), ..SalvageOptions::default() };
    let options = DumpOptions { data_block_size: Some(128), ..DumpOptions::default() };
    let _ = dump_salvaged(&image, &options, None, &mut text, &NoProgress);
    let mut output = MemorySource::new(400);
    if repair(&image, &mut output, &salvage, &NoProgress).is_ok() {
        expect_sound(output, "repaired");
    }
    delete(&image);
    mend(&image);
}

#[track_caller]
fn expect_sound(memory: MemorySource, what: &str) -> Vec<ModelDevice> {
    let image = Image::new(memory);
    let model = Model::read(&image);
    assert!(model.is_sound(), "{what}: {}", model.problems.join(", "));
    model.devices
}

/// Deletes a device of what may be deleted from, in both ways: all others stay as they are.
fn delete(image: &Image) {
    if precheck(image, Precheck::Full, &NoProgress).is_err() {
        return;
    }
    let Some(memory) = overlay::memory(image) else { return };
    let before = Model::read(image);
    let target = Target::read(image, &NoProgress).unwrap();
    let Some(victim) = target.ids().next() else { return };
    let kept: Vec<ModelDevice> = before.devices.iter().filter(|device| device.id != victim.0).cloned().collect();
    for strategy in [Strategy::Drop, Strategy::Recount] {
        let options = DeleteOptions { strategy, ..DeleteOptions::default() };
        let Ok(deletion) = plan(&target, &BTreeSet::from([ThinId(victim.0)]), options, &NoProgress) else { continue };
        let mut after = memory.clone();
        deletion.commit(&mut after).unwrap();
        if before.is_sound() {
            assert!(expect_sound(after, "deleted") == kept, "{strategy:?} changed other devices");
        } else {
            let after = Image::new(after);
            assert!(Model::read(&after).devices == kept, "{strategy:?} changed other devices");
        }
    }
}

/// Builds the space maps anew where that is allowed: then all is sound, and the devices are what they were.
pub fn mend(image: &Image) {
    let Some(mut memory) = overlay::memory(image) else { return };
    let Ok((report, counted)) = check_and_count(image, &CheckOptions::default(), &NoProgress, &mut |_| ()) else {
        return;
    };
    let options = FixOptions { leaks: true, space_maps: true, needs_check: true };
    let Ok(Some(fix)) = fix::plan(image, &report, counted.as_ref(), options) else { return };
    let all_cured = report
        .findings
        .counts()
        .keys()
        .all(|code| fix.cures(*code) || code.problem().severity == dmeta::base::Severity::Note);
    let before = Model::read(image).devices;
    fix.commit(&mut memory).unwrap();
    if all_cured {
        assert!(expect_sound(memory, "mended") == before, "mending changed devices");
    } else {
        assert!(Model::read(&Image::new(memory)).devices == before, "mending changed devices");
    }
}
