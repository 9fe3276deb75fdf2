use super::*;

fn run(writers: usize, choice: Choice) -> Run {
    simulate(Groups { writers, choice, ..Groups::default() })
}

#[track_caller]
fn close(got: f64, wanted: f64) {
    assert!((got / wanted - 1.0).abs() < 0.02, "{got} is not {wanted}");
}

/// One writer has its own times, one lock its hold and the hand-off, many locks the store.
#[test]
fn limits_are_those_of_the_parts() {
    let of_writer = 1e9 / (HOLD + OUTSIDE) as f64;
    let of_lock = 1e9 / (HOLD + PER_MB * WAKE) as f64;
    close(run(1, Choice::Stock).children, of_writer);
    close(run(2, Choice::Stock).children, of_lock);
    close(run(8, Choice::Stock).children, of_lock);
    // The backlog that may build up is on top of the store's rate.
    let intra = run(16, Choice::Intra).children;
    assert!((STORE_MB_S..1.05 * STORE_MB_S).contains(&intra), "{intra}");
}

#[test]
fn the_share_that_is_done_alone_decides() {
    let [half, three, all] = [0.5, 0.75, 1.0].map(|share| run(8, Choice::Shared(share)).children);
    assert_eq!(half, run(8, Choice::Intra).children);
    assert_eq!(all, run(8, Choice::Stock).children);
    assert!(all < three && three < half, "{all} {three} {half}");
}

#[test]
fn whoever_finds_a_lock_taken_goes_elsewhere() {
    let stock = run(4, Choice::Stock);
    for choice in [Choice::TryLock, Choice::Intra] {
        let run = run(4, choice);
        assert!(run.chosen.busy > 0 && run.children > 1.2 * stock.children, "{choice:?}");
    }
    assert_eq!(stock.chosen.busy, 0);
    // In one group there is nowhere to go.
    for choice in [Choice::TryLock, Choice::Intra, Choice::Stock] {
        let one = simulate(Groups { writers: 4, choice, groups: 1, group_mb: 4096, ..Groups::default() });
        assert_eq!((one.chosen.busy, one.chosen.full), (0, 0));
        close(one.children, stock.children);
    }
}

/// Locks of bitmaps let as many write at once as there are bitmaps.
#[test]
fn bitmaps_scale_to_their_number() {
    let with = |bitmaps| {
        simulate(Groups {
            writers: 8,
            choice: Choice::Bitmaps(bitmaps),
            groups: 8,
            group_mb: 2048,
            ..Groups::default()
        })
    };
    let [one, two, many] = [1, 2, 13].map(|bitmaps| with(bitmaps).children);
    close(one, run(8, Choice::Stock).children);
    assert!(two > 1.2 * one && many > 0.99 * two, "{one} {two} {many}");
}

#[test]
fn what_is_reserved_is_in_one_piece_and_needs_no_lock() {
    let alone = run(8, Choice::Reservations(1));
    close(alone.children, run(8, Choice::Stock).children);
    let many = run(8, Choice::Reservations(16));
    assert!(many.children > 1.2 * alone.children);
    assert!(
        many.fragments <= 8 * STEPS / 16 + 16 && alone.fragments > 8 * STEPS / 2,
        "{} {}",
        many.fragments,
        alone.fragments
    );
    assert_eq!(many.locks.hold_exclusive.count(), 8 * STEPS / 16);
}

/// Steps, places and holds add up.
#[test]
fn nothing_is_lost() {
    for choice in [Choice::Stock, Choice::Intra, Choice::TryLock, Choice::Bitmaps(5), Choice::Shared(0.5)] {
        let run = run(4, choice);
        let Chosen { kept, full, busy } = run.chosen;
        assert_eq!((kept + full + busy, run.locks.hold_exclusive.count()), (4 * STEPS, 4 * STEPS), "{choice:?}");
        assert!((0.0..=1.0).contains(&run.parallelism) && run.parent() <= run.children);
        assert!(run.fragments >= 4 && run.fragments <= 4 * STEPS);
    }
    assert_eq!(run(1, Choice::Stock).fragments, 1);
}

/// A runner that takes the lock again before the woken one arrives leaves the others behind.
#[test]
fn an_unfair_queue_lets_one_run_alone() {
    for writers in [2, 4, 8] {
        let unfair = Groups { writers, flavour: Flavour::Barge, wake: 40_000, ..Groups::default() };
        assert!((simulate(unfair).parallelism * writers as f64 - 1.0).abs() < 0.1);
    }
}
