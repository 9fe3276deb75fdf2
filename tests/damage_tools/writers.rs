//! Tools that write: to a copy of the damaged image, or from it to another file.

use super::bench::Bench;
use super::faults::{check_all, faults};
use super::model::{Model, ModelDevice};
use super::pool;
use super::process::End;
use dmeta::base::Severity;
use std::fs;
use std::path::Path;

pub fn all(bench: &mut Bench<'_>, model: &Model<'_>) {
    for (form, word) in [
        ("thin_check --auto-repair", "--auto-repair"),
        ("thin_check --clear-needs-check-flag", "--clear-needs-check-flag"),
        ("thin_check --repair-space-maps", "--repair-space-maps"),
    ] {
        if bench.is_ours() || word != "--repair-space-maps" {
            mend(bench, model, form, word);
        }
    }
    repair(bench);
    if bench.is_ours() {
        delete(bench, model, "thin_delete", &[]);
        delete(bench, model, "thin_delete --allow-damaged", &["--allow-damaged"]);
        let form = "thin_generate_damage";
        let copy = bench.copy();
        bench.run(form, form, &["--kind", "noise", "-o"], &[&copy]);
        undo(bench);
    }
    restore(bench);
}

/// The copy is sound after status 0, and as it was after status 1.
fn mend(bench: &mut Bench<'_>, model: &Model<'_>, form: &'static str, word: &str) {
    let copy = bench.copy();
    let ran = bench.run(form, "thin_check", &[word], &[&copy]);
    match ran.end {
        End::Success => expect_sound(bench, form, &copy, Some(&model.devices)),
        End::Failure if !pool::is(&copy, bench.bytes) => {
            // What could be mended was; the rest is told. Nothing may have become worse.
            let after = pool::read(&copy);
            if Model::read(&after).devices != model.devices {
                bench.spoiled(form, "fails, and changed devices");
            }
        }
        _ => {}
    }
}

fn expect_sound(bench: &mut Bench<'_>, form: &'static str, path: &Path, devices: Option<&[ModelDevice]>) {
    let after = pool::read(path);
    let model = Model::read(&after);
    if !bench.is_ours() {
        // Others keep other numbers of free blocks: only what is fatal counts against them.
        let report = check_all(&after);
        if report.findings.worst() == Some(Severity::Fatal) {
            bench.spoiled(form, &format!("says that all is well, but\n{}", report.text()));
        }
    } else if !model.is_sound() {
        bench.spoiled(form, &format!("says that all is well, but {}", model.problems[0]));
    } else if let Some(fault) = faults(&after).first() {
        bench.spoiled(form, fault);
    } else if devices.is_some_and(|devices| devices != model.devices) {
        bench.spoiled(form, "changed devices");
    }
}

fn repair(bench: &mut Bench<'_>) {
    let form = "thin_repair";
    let output = bench.file("repaired");
    pool::blank(&output, bench.pool.nr_blocks + 64);
    let size = bench.pool.data_block_size.to_string();
    let words: &[&str] = if bench.is_ours() { &["--data-block-size", &size, "-i"] } else { &["-i"] };
    let input = bench.input.clone();
    let ran = bench.run(form, form, words, &[&input, Path::new("-o"), &output]);
    if !pool::is(&input, bench.bytes) {
        bench.spoiled(form, "changed its input");
    }
    let after = pool::read(&output);
    let model = Model::read(&after);
    match ran.end {
        End::Success => expect_sound(bench, form, &output, None),
        _ if bench.is_ours() && model.is_sound() => bench.spoiled(form, "fails, but leaves what passes"),
        _ if bench.is_ours() => bench.tally.refusals.push(format!("{}: {}", bench.context, ran.stderr.trim_end())),
        _ => {}
    }
    let good = ran.end == End::Success && model.dump_is_sound;
    bench.lose(form, good.then(|| pool::mappings(&model.devices)));
}

/// The others stay as they are, or nothing is done.
fn delete(bench: &mut Bench<'_>, model: &Model<'_>, form: &'static str, more: &[&str]) {
    let Some(victim) = bench.pool.mappings.keys().next().copied() else { return };
    let copy = bench.copy();
    let id = victim.to_string();
    let ran = bench.run(form, "thin_delete", &[more, &["--dev-id", &id]].concat(), &[&copy]);
    if ran.end != End::Success {
        if !pool::is(&copy, bench.bytes) {
            bench.spoiled(form, "fails, but changed the metadata");
        }
        return;
    }
    let after = pool::read(&copy);
    let left = Model::read(&after);
    let kept: Vec<&ModelDevice> = model.devices.iter().filter(|device| device.id != victim).collect();
    if left.devices.iter().collect::<Vec<_>>() != kept {
        bench.spoiled(form, "changed other devices");
    }
    // What was wrong before is wrong still, by other numbers perhaps.
    let words = |text: &String| text.chars().filter(|c| !c.is_ascii_digit()).collect::<String>();
    let before: Vec<String> = model.problems.iter().map(words).collect();
    if let Some(problem) = left.problems.iter().find(|problem| !before.contains(&words(problem))) {
        bench.spoiled(form, &format!("all is well, but {problem}"));
    }
}

/// A damaged file to undo from does nothing; a good one on damaged metadata does not crash.
fn undo(bench: &mut Bench<'_>) {
    let Some(made) = &bench.change else { return };
    let (file, copy) = (bench.file("undo"), bench.file("changed"));
    let mut bytes = made.undo.clone();
    bench.spoil(&mut bytes);
    let Some(made) = &bench.change else { return };
    let harmless = bytes == made.undo;
    fs::write(&file, &bytes).unwrap();
    pool::write(&copy, &made.after);
    let after = made.after.clone();
    let form = "thin_undo from a damaged file";
    let ran = bench.run(form, "thin_undo", &[], &[&file, &copy]);
    if !harmless && (ran.end == End::Success || !pool::is(&copy, &after)) {
        bench.spoiled(form, "was done");
    }
    let Some(made) = &bench.change else { return };
    fs::write(&file, &made.undo).unwrap();
    let copy = bench.copy();
    let form = "thin_undo on other metadata";
    bench.run(form, "thin_undo", &[], &[&file, &copy]);
}

/// Damaged text gives a sound pool or none.
fn restore(bench: &mut Bench<'_>) {
    let form = "thin_restore of damaged XML";
    if bench.xml.is_empty() {
        return;
    }
    let (file, output) = (bench.file("xml"), bench.file("restored"));
    let mut bytes = bench.xml.to_vec();
    bench.spoil_text(&mut bytes);
    fs::write(&file, &bytes).unwrap();
    pool::blank(&output, bench.pool.nr_blocks + 64);
    let ran = bench.run(form, "thin_restore", &["-i"], &[&file, Path::new("-o"), &output]);
    match ran.end {
        End::Success => expect_sound(bench, form, &output, None),
        _ if bench.is_ours() && Model::read(&pool::read(&output)).is_sound() => {
            bench.spoiled(form, "fails, but leaves what passes");
        }
        _ => {}
    }
}
