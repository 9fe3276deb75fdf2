//! Tools that only read a damaged image.

use super::bench::Bench;
use super::model::Model;
use super::pool::{self, Pool};
use super::process::End;
use super::support::pool_text::PoolText;
use super::tally::Loss;
use dmeta::cli::registry::TOOLS;
use dmeta::format::block::{BLOCK_SIZE, Block, identify};
use std::fs;
use std::path::Path;

/// Tools that have forms of their own here, and one that reads nothing.
const OWN_FORMS: [&str; 11] = [
    "thin_check",
    "thin_delete",
    "thin_dump",
    "thin_generate_damage",
    "thin_generate_metadata",
    "thin_metadata_pack",
    "thin_metadata_unpack",
    "thin_repair",
    "thin_replay",
    "thin_restore",
    "thin_undo",
];

pub fn all(bench: &mut Bench<'_>, model: &Model<'_>) {
    checks(bench, model);
    dumps(bench, model);
    if bench.is_ours() {
        bench.simple("thin_repair --list-roots", "thin_repair", &["--list-roots", "-i"]);
        let id = bench.pool.mappings.keys().next().copied().unwrap_or(1).to_string();
        bench.simple("thin_replay predict", "thin_replay", &["predict", "--delete", &id]);
        bench.simple("thin_delete --dry-run", "thin_delete", &["--dry-run", "--dev-id", &id]);
        packs(bench);
        others(bench);
    }
    if !pool::is(&bench.input, bench.bytes) {
        bench.spoiled("thin_dump", "a tool that reads changed its input");
    }
}

fn checks(bench: &mut Bench<'_>, model: &Model<'_>) {
    let ran = bench.simple("thin_check", "thin_check", &[]);
    if ran.end == End::Success && !model.is_sound() {
        bench.wrong("thin_check", &format!("passes, but {}", model.problems[0]));
    }
    if bench.is_ours() && ran.end == End::Failure && model.is_sound() {
        bench.wrong("thin_check", "is sound, but fails");
    }
    let ran = bench.simple("thin_check --skip-mappings", "thin_check", &["--skip-mappings"]);
    if bench.is_ours() && ran.end == End::Failure && model.is_sound() {
        bench.wrong("thin_check --skip-mappings", "is sound, but fails");
    }
    bench.simple("thin_check --super-block-only", "thin_check", &["--super-block-only"]);
    let form = "thin_check --ignore-non-fatal-errors";
    let ran = bench.simple(form, "thin_check", &["--ignore-non-fatal-errors"]);
    if let Some(loss) = model.loss().filter(|_| ran.end == End::Success) {
        bench.wrong(form, &format!("passes, but {loss}"));
    }
    if bench.is_ours() {
        let form = "thin_check --json";
        let ran = bench.simple(form, "thin_check", &["--json"]);
        if serde_json::from_slice::<serde_json::Value>(&ran.stdout).is_err() {
            bench.wrong(form, "is no JSON");
        }
    }
}

fn dumps(bench: &mut Bench<'_>, model: &Model<'_>) {
    let form = "thin_dump";
    let ran = bench.simple(form, "thin_dump", &[]);
    if ran.end == End::Success && !model.dump_is_sound && ran.stderr.trim().is_empty() {
        bench.wrong(form, &format!("not a word, but {}", model.problems[0]));
    }
    if bench.is_ours() && ran.end == End::Failure && model.dump_is_sound {
        bench.wrong(form, "the trees are sound, but it fails");
    }
    let size = bench.pool.data_block_size.to_string();
    let words: &[&str] = if bench.is_ours() { &["-r", "--data-block-size", &size] } else { &["-r"] };
    let form = "thin_dump -r";
    let ran = bench.simple(form, "thin_dump", words);
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    let whole = ran.end == End::Success && text.trim_end().ends_with("</superblock>");
    if bench.is_ours() && ran.end == End::Success && !whole {
        bench.spoiled(form, "ends within the document");
    }
    // What others print of badly damaged pools is not always a document.
    let found = whole.then(|| std::panic::catch_unwind(|| text_mappings(&text)).ok()).flatten();
    bench.lose(form, found);
}

fn text_mappings(text: &str) -> pool::Mappings {
    let dumped = PoolText::from_xml(text);
    let of = |device| dumped.mappings(device).into_iter().map(|(thin, data, _)| (thin, data)).collect();
    dumped.devices.iter().map(|device| (device.id(), of(device))).collect()
}

/// Packed, and unpacked to the same blocks: all that have the checksum of a kind of block.
fn packs(bench: &mut Bench<'_>) {
    let (packed, unpacked) = (bench.file("pack"), bench.file("unpacked"));
    let _ = (fs::remove_file(&packed), fs::remove_file(&unpacked));
    let input = bench.input.clone();
    let ran = bench.run("thin_metadata_pack", "thin_metadata_pack", &["-i"], &[&input, Path::new("-o"), &packed]);
    if ran.end != End::Success {
        return;
    }
    let form = "thin_metadata_unpack";
    let ran = bench.run(form, form, &["-i"], &[&packed, Path::new("-o"), &unpacked]);
    let back = fs::read(&unpacked).unwrap_or_default();
    let same = |new: &Block, old: &Block| new == old || identify(old).is_none() && new.iter().all(|byte| *byte == 0);
    let pairs = back.as_chunks::<BLOCK_SIZE>().0.iter().zip(bench.bytes.as_chunks::<BLOCK_SIZE>().0);
    if ran.end != End::Success || back.len() != bench.bytes.len() || !pairs.into_iter().all(|(new, old)| same(new, old))
    {
        bench.spoiled(form, "is not what was packed");
    }
    let form = "thin_check of a damaged pack";
    let mut bytes = fs::read(&packed).unwrap();
    bench.spoil(&mut bytes);
    fs::write(&packed, &bytes).unwrap();
    bench.run(form, "thin_check", &[], &[&packed]);
    let _ = fs::remove_file(&unpacked);
    let form = "thin_metadata_unpack of a damaged pack";
    let ran = bench.run(form, "thin_metadata_unpack", &["-i"], &[&packed, Path::new("-o"), &unpacked]);
    let back = fs::read(&unpacked).unwrap_or_default();
    let is_metadata = |block: &Block| identify(block).is_some() || block.iter().all(|byte| *byte == 0);
    if ran.end == End::Success && !back.as_chunks::<BLOCK_SIZE>().0.iter().all(is_metadata) {
        bench.spoiled(form, "wrote blocks that are no metadata");
    }
}

/// Tools that came later: with the input in the place where they want it.
fn others(bench: &mut Bench<'_>) {
    for tool in TOOLS.iter().filter(|tool| !OWN_FORMS.contains(&tool.name)) {
        let command = tool.command();
        let option = |name: &str| command.get_opts().any(|option| option.get_id() == name);
        let output = bench.file("out");
        pool::blank(&output, bench.pool.nr_blocks);
        let mut extra = vec![bench.input.clone()];
        if option("input") && option("output") {
            extra.extend(["-o".into(), output]);
        }
        let extra: Vec<&Path> = extra.iter().map(AsRef::as_ref).collect();
        bench.run(tool.name, tool.name, if option("input") { &["-i"] } else { &[] }, &extra);
    }
}

/// What is gone of a pool, and what is there that was not.
pub fn loss(pool: &Pool, found: Option<&pool::Mappings>) -> Loss {
    let mut loss = Loss { images: 1, refused: u64::from(found.is_none()), ..Loss::default() };
    for (id, wanted) in &pool.mappings {
        loss.devices += 1;
        loss.mappings += wanted.len() as u64;
        match found.and_then(|found| found.get(id)) {
            None => {
                loss.devices_lost += 1;
                loss.mappings_lost += wanted.len() as u64;
            }
            Some(there) => loss.mappings_lost += wanted.difference(there).count() as u64,
        }
    }
    for (id, there) in found.into_iter().flatten() {
        loss.mappings_foreign += match pool.mappings.get(id) {
            None => there.len() as u64,
            Some(wanted) => there.difference(wanted).count() as u64,
        };
    }
    loss
}
