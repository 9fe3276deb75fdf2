//! Bodies for XML and for traces.

use super::faults::faults;
use super::image::Image;
use dmeta::base::{NoProgress, ThinId};
use dmeta::block::BlockSource;
use dmeta::block::memory::MemorySource;
use dmeta::replay::trace::{ImportOptions, Mapping, parse, read_any};
use dmeta::thin::dump::{DumpOptions, dump};
use dmeta::thin::restore::{RestoreError, RestoreOptions, XmlInput, restore_in_memory};
use dmeta::thin::xml::XmlOptions;

fn restored(text: &[u8], lenient: bool) -> Result<MemorySource, RestoreError> {
    let options = RestoreOptions { xml: XmlOptions { lenient }, ..RestoreOptions::default() };
    restore_in_memory(XmlInput::Stream(Box::new(text)), &options, &NoProgress)
}

fn dumped(image: &MemorySource) -> Vec<u8> {
    let mut out = Vec::new();
    dump(image, &DumpOptions::default(), &mut out, &NoProgress).unwrap();
    out
}

/// XML: what is accepted is restored to a sound pool, whose dump is restored to the same.
pub fn xml(data: &[u8]) {
    let strict = restored(data, false);
    let lenient = restored(data, true);
    assert!(strict.is_err() || lenient.is_ok(), "lenient is stricter");
    let Ok(image) = lenient else { return };
    if BlockSource::nr_blocks(&image) > 1 << 11 {
        return;
    }
    let found = faults(&Image::new(image.clone()));
    assert!(found.is_empty(), "{}", found.join("\n"));
    let text = dumped(&image);
    let again = dumped(&restored(&text, false).unwrap());
    assert!(text == again, "{}\n--- and then\n{}", String::from_utf8_lossy(&text), String::from_utf8_lossy(&again));
}

/// Traces of every kind: what is accepted is written as a trace that reads back to the same.
pub fn trace(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let any = |dev, start| Mapping { name: "*".into(), dev: Some(ThinId(dev)), start };
    let plain = ImportOptions { map: vec![any(1, 0)], ..ImportOptions::default() };
    let other = ImportOptions {
        map: vec![any(u64::MAX, u64::MAX)],
        by_process: true,
        lenient: true,
        unit: Some(1_000_000),
        ..ImportOptions::default()
    };
    for options in [plain, other] {
        let Ok((trace, account)) = read_any(&text, &options) else { continue };
        assert_eq!(account.lines(), text.lines().count() as u64, "every line is taken or dropped");
        let written = trace.text();
        match parse(&written, false) {
            Ok(again) => assert_eq!(again, trace, "{written}"),
            Err(error) => panic!("{error}\n{written}"),
        }
        trace.devices();
        assert_eq!(trace.starts().len(), trace.streams.len());
    }
}
