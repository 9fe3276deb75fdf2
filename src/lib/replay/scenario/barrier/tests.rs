use super::report::range;
use super::*;

const MS: Ns = 1_000_000;

#[track_caller]
fn close(got: f64, wanted: f64, share: f64) {
    assert!((got / wanted - 1.0).abs() < share, "{got} is not {wanted}");
}

/// Two requests pass between two turns, so the time grows as (2 + kappa) / 2.
#[test]
fn without_a_throttle_two_pass_a_turn() {
    for kappa in [3.0, 10.0, 28.0] {
        let rules = Barrier { kappa, ..Barrier::default() };
        close(slower(rules), (2.0 + kappa) / 2.0, 0.025);
        let run = simulate(rules);
        assert!(run.passed[&2] > run.turns - 3, "{:?}", run.passed);
    }
}

/// The period is the least number of ticks in which all that is under way and a turn fit.
#[test]
fn a_tick_gives_its_period() {
    let base = Barrier::default();
    // Where the turn ends well inside a tick.
    for (tick, depth, kappa) in [
        (4 * MS, 32, 28.0),
        (10 * MS, 32, 28.0),
        (10 * MS, 8, 28.0),
        (4 * MS, 64, 28.0),
        (10 * MS, 32, 10.0),
        (4 * MS, 16, 10.0),
    ] {
        let turn = kappa * base.request as f64;
        let tick_ns = tick as f64;
        let period = tick_ns * ((depth * base.request) as f64 / tick_ns + turn / tick_ns).ceil();
        let rules = Barrier { turn: Turn::Tick(tick), depth, kappa, ..base };
        close(slower(rules), period / (period - turn), 0.02);
    }
}

/// Whether the resync sees a waiter does not hang on luck: it learns of its own request before the barrier falls.
#[test]
fn the_resync_sees_who_waits_at_its_own_request() {
    let (run, record) = recorded(Barrier { turn: Turn::Tick(4 * MS), ..Barrier::default() }, 100_000);
    let falls: Vec<usize> = (0..record.len()).filter(|at| record[*at].1 == What::Falls).collect();
    assert!(falls.len() > 100 && run.left.0 > 100);
    for at in &falls[..100] {
        let (time, next) = (record[*at].0, record[*at + 1]);
        assert!(matches!(next.1, What::Leaves(_)) && next.0 == time + OWN_WAKE, "{next:?}");
    }
}

/// Without a word when the last waiter goes on, the resync looks only at completions: one more than fit pass.
#[test]
fn to_the_letter_as_many_pass_as_fit() {
    for depth in [1, 2, 8, 32] {
        let run = simulate(Barrier { told: false, submit: 0, depth, ..Barrier::default() });
        assert!(run.passed[&(depth + 1)] + 2 > run.turns, "{:?}", run.passed);
    }
    // Where it is told at once, two pass from half of a wake on, and one from a whole one on.
    for (submit, pass) in [(2_499, 3), (2_500, 2), (4_999, 2), (5_000, 1)] {
        let run = simulate(Barrier { submit, ..Barrier::default() });
        assert!(run.passed[&pass] > run.turns - 3, "{submit}: {:?}", run.passed);
    }
}

#[test]
fn a_window_needs_another_request_under_way() {
    let base = Barrier { window: true, ..Barrier::default() };
    let single = Barrier { depth: 1, ..base };
    assert_eq!(simulate(single).time, simulate(Barrier { window: false, ..single }).time);
    assert!(slower(single) > 10.0 && slower(base) < 1.1);
    let synchronous = slower(Barrier { sync_every: 8, ..base });
    assert!(synchronous > 2.0 && synchronous < 6.0, "one turn for each lot of 8: {synchronous}");
}

/// No turn is missing in the counts, and nobody waits longer than a turn and what was under way.
#[test]
fn turns_and_waits_are_counted() {
    let run = simulate(Barrier::default());
    assert_eq!(run.passed.values().sum::<u64>(), run.turns);
    assert!(run.passed.iter().map(|(requests, turns)| requests * turns).sum::<u64>() <= REQUESTS);
    assert!((2 * MS..7 * MS).contains(&run.longest_wait), "{}", run.longest_wait);
    assert_eq!((run.left, run.paused), ((0, 0), (0, 0)));
    let old = simulate(Barrier { old_speed: true, ..Barrier::default() });
    assert_eq!(old.paused, (old.turns, old.turns * OLD_PAUSE));
    assert_eq!(simulate(Barrier { resync: false, ..Barrier::default() }).turns, 0);
    assert_eq!(range([2.0, 1.0, 3.0].into_iter()), (1.0, 3.0));
}

/// The two predictions that part from what was published are met where a turn costs what the resync's request does,
/// without seeks: 12 with one request under way, with and without the window, and 2.4 with synchronous points.
#[test]
fn without_seeks_the_published_extras_come_out() {
    let seekless = Barrier { kappa: 0.4 * Barrier::default().kappa, ..Barrier::default() };
    for window in [false, true] {
        close(slower(Barrier { depth: 1, window, ..seekless }), 12.0, 0.03);
    }
    close(slower(Barrier { sync_every: 8, window: true, ..seekless }), 2.4, 0.01);
}

/// The published rates of the resync are in MiB/s: none, and a tick at 100, 250, 300 and 1000 Hz.
#[test]
fn the_resync_runs_at_the_published_rates() {
    let rows = [
        (Turn::AtOnce, 20.8),
        (Turn::Tick(10 * MS), 6.2),
        (Turn::Tick(4 * MS), 7.8),
        (Turn::Tick(10 * MS / 3), 9.4),
        (Turn::Tick(MS), 10.4),
    ];
    for (turn, published) in rows {
        let run = simulate(Barrier { turn, ..Barrier::default() });
        close(run.turns as f64 * 64.0 / 1024.0 / (run.time as f64 / 1e9), published, 0.01);
    }
}
