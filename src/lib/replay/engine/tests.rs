use super::*;

/// Who did what and when.
#[derive(Default)]
struct Log(Vec<(char, Ns)>);

impl World for Log {
    fn is_over(&self) -> bool {
        false
    }
}

/// Notes the time before each of its steps.
struct Script(char, Vec<Step>);

impl Program<Log> for Script {
    fn step(&mut self, world: &mut Log, env: &mut Env<'_>) -> Step {
        world.0.push((self.0, env.now));
        if self.1.is_empty() { Step::End } else { self.1.remove(0) }
    }
}

fn run(flavour: Flavour, scripts: &[(char, Ns, &[Step])]) -> (Vec<(char, Ns)>, LockStats) {
    let mut engine = Engine::new(Log::default(), &[flavour], 1, 5);
    for (name, when, steps) in scripts {
        engine.add(Box::new(Script(*name, steps.to_vec())), *when);
    }
    engine.run(Ns::MAX);
    let (world, mut stats) = engine.into_parts();
    (world.0, stats.remove(0))
}

const X: Step = Step::Lock(0, Mode::Exclusive);
const S: Step = Step::Lock(0, Mode::Shared);
const U: Step = Step::Unlock(0);

#[test]
fn a_lock_is_waited_for_and_a_wake_takes_time() {
    let (log, stats) = run(Flavour::Fifo, &[('a', 0, &[X, Step::Cpu(100), U]), ('b', 10, &[X, Step::Cpu(7), U])]);
    assert_eq!(
        log.iter().filter(|(who, _)| *who == 'b').map(|(_, when)| *when).collect::<Vec<_>>(),
        [10, 105, 112, 112]
    );
    assert_eq!((stats.wait_exclusive.max(), stats.hold_exclusive.count(), stats.uncontended), (90, 2, 1));
}

#[test]
fn a_running_writer_steals_under_rwsem_and_not_under_fifo() {
    let thief: &[Step] = &[X, Step::Cpu(100), U, X, Step::Cpu(100), U];
    let end = |flavour| {
        let (log, _) = run(flavour, &[('a', 0, thief), ('b', 10, &[X, U])]);
        log.iter().rfind(|(who, _)| *who == 'b').map(|(_, when)| *when)
    };
    assert_eq!((end(Flavour::Rwsem2016), end(Flavour::Fifo)), (Some(205), Some(105)));
}

#[test]
fn readers_run_together() {
    let (log, stats) = run(Flavour::Rwsem2016, &[('a', 0, &[S, Step::Cpu(50), U]), ('b', 0, &[S, Step::Cpu(50), U])]);
    assert_eq!(log.last().map(|(_, when)| *when), Some(50));
    assert_eq!((stats.hold_shared.count(), stats.wait_shared.max()), (2, 0));
}

#[test]
fn what_happens_at_the_same_time_happens_in_the_order_of_its_making() {
    let scripts: Vec<(char, Ns, &[Step])> = ('a'..='f').map(|name| (name, 3, &[Step::Cpu(4)][..])).collect();
    let (log, _) = run(Flavour::Fifo, &scripts);
    let names: String = log.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, "abcdefabcdef");
}
