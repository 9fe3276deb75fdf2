use super::*;
use crate::replay::pool::{self, RunOptions};
use crate::thin::live::Base;

fn settings() -> Settings {
    Settings { scale: 128, ..Settings::default() }
}

#[track_caller]
fn check<'a>(report: &'a Report, id: &str) -> &'a Check {
    report.checks.iter().find(|check| check.id == id).unwrap_or_else(|| panic!("no {id}"))
}

#[test]
fn small_scenarios_hold() {
    for (name, run) in ALL.into_iter().filter(|(name, _)| *name != "delete") {
        let report = run(&Settings::default()).unwrap();
        assert_eq!(report.name, name);
        assert!(report.passed(), "{}", report.text());
    }
}

/// At a smaller scale the same ratios come out, but those that need many boundaries.
#[test]
fn deletes_hold() {
    let report = delete::run(&settings()).unwrap();
    let failed: Vec<&Check> = report.checks.iter().filter(|check| check.pass == Some(false)).collect();
    assert!(failed.iter().all(|check| ["D5", "D6", "D7", "D8"].contains(&check.id.as_str())), "{}", report.text());
    assert!(!report.text().contains("DAMAGED"), "{}", report.text());
}

/// The checks can fail: with full leaves other figures come out than were reported.
#[test]
fn full_leaves_must_fail() {
    let report = delete::run(&Settings { scale: 32, leaf_fill: 100, ..Settings::default() }).unwrap();
    for id in ["D3", "D7", "D8"] {
        assert_eq!(check(&report, id).pass, Some(false), "{}", report.text());
    }
}

/// With a lock that anybody may take the order of the policies is lost.
#[test]
fn a_barging_lock_must_fail() {
    let report = delete::run(&Settings { flavour: Flavour::Barge, ..settings() }).unwrap();
    assert_eq!(check(&report, "D1").pass, Some(false), "{}", report.text());
}

/// Without seeks the resync does no such harm.
#[test]
fn a_small_kappa_must_fail() {
    let report = barrier::run(&Settings { kappa: 3.0, ..Settings::default() }).unwrap();
    assert_eq!(check(&report, "B1").pass, Some(false), "{}", report.text());
}

/// Requests a stripe, and reads of them, without and with the stripe cache.
#[test]
fn requests_per_stripe_are_those_of_the_table() {
    let count = |block, chunk| {
        let one = stripe::per_stripe(stripe::Layout { data: 5, chunk }, block);
        (one.reads + one.writes, one.reads, one.writes + one.reads_cached, one.reads_cached)
    };
    assert_eq!(count(1024, 512), (21.0, 10.0, 14.5, 3.5));
    for (block, chunk) in [(2560, 512), (640, 128), (320, 64), (5120, 512)] {
        assert_eq!(count(block, chunk), (7.0, 0.0, 7.0, 0.0));
    }
    assert_eq!(count(1024, 128), (10.5, 2.5, 9.25, 1.25));
    assert_eq!(count(1024, 64), (8.75, 1.25, 8.125, 0.625));
    assert_eq!(count(4096, 512), (10.5, 2.5, 9.25, 1.25));
    assert_eq!(count(64, 512), (280.0, 195.0, 89.875, 4.875));
}

/// What a crash in the middle leaves is what the policies say of themselves.
#[test]
fn crashes_leave_what_the_policies_say() {
    let source = delete::image(64, 50, 0).unwrap();
    let base = Base::open(&source).unwrap();
    let left = |policy: &str| {
        let options = RunOptions { crash_after: 1, ..delete::options(&Settings::default(), Some(policy), false) };
        let mut outcome = pool::run(&base, delete::streams(delete::Load::Write, true, 8), &options).unwrap();
        delete::soundness(&mut outcome).unwrap()
    };
    for policy in ["coarse", "background+sleep(1ms)", "discard-first"] {
        assert!(left(policy).is_sound(), "{policy}: {:?}", left(policy));
    }
    for policy in ["batch(16)+sleep(10ms)", "subleaf(31)+sleep(5ms)"] {
        let found = left(policy);
        assert!(
            found.whole && found.low == 0 && found.leaked_metadata > 100 && found.leaked_data > 1000,
            "{policy}: {found:?}"
        );
    }
}
