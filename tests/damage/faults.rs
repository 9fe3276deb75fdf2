//! What our tools say of an image, held against what the plain reader says.

use super::image::Image;
use super::model::Model;
use super::pool_text::PoolText;
use dmeta::base::{NoProgress, Severity};
use dmeta::thin::check::{CheckOptions, check};
use dmeta::thin::dump::{DumpError, DumpOptions, DumpOutcome, dump};
use dmeta::thin::report::{Report, Verdict};

/// A whole check.
pub fn check_all(image: &Image) -> Report {
    check(image, &CheckOptions::default(), &NoProgress, &mut |_| ()).unwrap()
}

/// A dump that repeats what is shared, and what came of it.
pub fn dump_flat(image: &Image) -> (Vec<u8>, Result<DumpOutcome, DumpError>) {
    let mut out = Vec::new();
    let options = DumpOptions { flat: true, ..Default::default() };
    let result = dump(image, &options, &mut out, &NoProgress);
    (out, result)
}

/// What is wrong with what our tools say of an image.
pub fn faults(image: &Image) -> Vec<String> {
    let model = Model::read(image);
    let report = check_all(image);
    let mut faults = Vec::new();
    let mut fault = |text: String| faults.push(text);
    let passes = report.findings.worst() <= Some(Severity::Note);
    if passes && !model.is_sound() {
        fault(format!("passes the check, but: {}", model.problems.join(", ")));
    }
    if !passes && model.is_sound() {
        fault(format!("is sound, but the check says\n{}", report.text()));
    }
    if passes != matches!(report.verdict(), Verdict::Clean | Verdict::Tidy)
        && report.findings.worst() != Some(Severity::NonFatal)
    {
        fault(format!("verdict {:?} for {:?}", report.verdict(), report.findings.worst()));
    }
    let (text, result) = dump_flat(image);
    match result {
        Err(_) => {
            if !text.is_empty() {
                fault("the dump failed and wrote something".into());
            }
            if model.dump_is_sound {
                fault("the trees are sound, but they are not dumped".into());
            }
        }
        Ok(outcome) => {
            if !model.dump_is_sound && outcome.findings.worst() < Some(Severity::NonFatal) {
                fault(format!("dumped without a word, but: {}", model.problems.join(", ")));
            }
            faults.extend(dump_differs(&model, &String::from_utf8(text).unwrap()));
        }
    }
    faults
}

fn dump_differs(model: &Model<'_>, text: &str) -> Option<String> {
    let pool = PoolText::from_xml(text);
    if pool.devices.len() != model.devices.len() {
        return Some(format!("{} of {} devices dumped", pool.devices.len(), model.devices.len()));
    }
    pool.devices.iter().zip(&model.devices).find_map(|(dumped, device)| {
        let same = dumped.id() == device.id
            && dumped.details[1..] == device.details
            && pool.mappings(dumped) == device.mappings;
        (!same).then(|| format!("device {} is dumped otherwise", device.id))
    })
}
