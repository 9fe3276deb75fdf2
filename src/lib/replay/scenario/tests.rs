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

/// Requests and reads per stripe, with nothing known and with what was read known: block and chunk in KiB.
#[test]
fn requests_per_stripe_are_those_of_the_table() {
    let table = [
        ((1024, 512), (21.0, 10.0), 14.5),
        ((2560, 512), (7.0, 0.0), 7.0),
        ((640, 128), (7.0, 0.0), 7.0),
        ((320, 64), (7.0, 0.0), 7.0),
        ((1024, 128), (10.5, 2.5), 9.25),
        ((1024, 64), (8.75, 1.25), 8.125),
        ((4096, 512), (10.5, 2.5), 9.25),
        ((5120, 512), (7.0, 0.0), 7.0),
        ((64, 512), (280.0, 195.0), 89.875),
    ];
    for ((block, chunk), alone, kept) in table {
        let layout = stripe::Layout { data: 5, chunk };
        let issue = stripe::Issue::alone(block);
        let found = stripe::per_stripe(layout, issue);
        assert_eq!((found.all(), found.reads), alone, "{block} {chunk}");
        assert_eq!(stripe::per_stripe(layout, stripe::Issue { kept: 1, ..issue }).all(), kept, "{block} {chunk}");
    }
}

/// Zeroing writes twice; blocks that are written together can fill stripes.
#[test]
fn zeroing_and_writing_together_change_requests() {
    let layout = stripe::Layout { data: 5, chunk: 512 };
    let found = |together, zero, kept| {
        stripe::per_stripe(layout, stripe::Issue { together, zero, kept, ..stripe::Issue::alone(1024) })
    };
    let alone = found(1, false, 0);
    assert_eq!((found(1, true, 0).all(), found(1, true, 0).reads), (42.0, 20.0));
    assert_eq!((found(1, false, 2).reads, found(1, true, 2).reads), (3.5, 3.5), "what is zeroed is known");
    assert_eq!(found(1, true, 1).reads, 7.5, "a block on two stripes needs both");
    assert_eq!((found(5, false, 0).all(), found(5, false, 0).reads), (7.0, 0.0));
    assert_eq!((found(5, true, 0).all(), alone.full, found(5, false, 0).full), (14.0, 0, 2));
    // Blocks that were taken one after the other are written together up to the end of a stripe.
    let taken: Vec<(u64, u64, u64)> = (0..10).map(|block| (1, block, block)).collect();
    let together = stripe::of_allocation(layout, 1024, &taken, true);
    assert_eq!((together.full, together.partial, together.reads), (4, 0, 0.0));
    let apart = stripe::of_allocation(layout, 1024, &taken, false);
    assert_eq!((apart.full, apart.all()), (0, 4.0 * 21.0));
}

/// The shorter the free runs that blocks were taken from, the more of them lie in parts of stripes.
#[test]
fn a_fragmented_pool_shows_up_as_partial_stripes() {
    let layout = stripe::Layout { data: 5, chunk: 512 };
    // One block is in use after every `run` free ones.
    let found = [30, 5, 3, 1].map(|run| {
        let taken: Vec<(u64, u64, u64)> = (0..30).map(|at| (1, at, at / run * (run + 1) + at % run)).collect();
        let found = stripe::of_allocation(layout, 1024, &taken, true);
        (found.full, found.partial, found.reads, found.writes)
    });
    assert_eq!(found, [(12, 0, 0.0, 84.0), (8, 8, 20.0, 92.0), (4, 16, 40.0, 100.0), (0, 36, 120.0, 132.0)]);
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
