//! Micro-programs: steps in a queue, between which tasks run that put further steps in front.

use super::engine::{Env, Program, Step};
use std::collections::VecDeque;

/// Something in the queue.
#[derive(Clone, Debug)]
pub enum Act<T> {
    /// A step of the engine.
    Step(Step),
    /// What the program is doing from here on.
    Label(&'static str),
    /// A task, run at the time at which its turn comes.
    Do(T),
}

/// What gives tasks their meaning.
pub trait Unit<W>: Send {
    /// What it can do.
    type Task: Send;

    /// Does a task; what is to come next goes into `then`.
    fn run(&mut self, task: Self::Task, world: &mut W, env: &mut Env<'_>, then: &mut Vec<Act<Self::Task>>);

    /// The next task when all is done; `None` where the program is over.
    fn next(&mut self) -> Option<Self::Task>;
}

/// A unit with its queue.
pub struct Machine<W, U: Unit<W>> {
    unit: U,
    queue: VecDeque<Act<U::Task>>,
    then: Vec<Act<U::Task>>,
}

impl<W, U: Unit<W>> Machine<W, U> {
    /// Nothing in the queue yet.
    pub fn new(unit: U) -> Self {
        Machine { unit, queue: VecDeque::new(), then: Vec::new() }
    }
}

impl<W: Send, U: Unit<W>> Program<W> for Machine<W, U> {
    fn step(&mut self, world: &mut W, env: &mut Env<'_>) -> Step {
        loop {
            let task = match self.queue.pop_front() {
                Some(Act::Step(step)) => return step,
                Some(Act::Label(label)) => {
                    env.label = label;
                    continue;
                }
                Some(Act::Do(task)) => task,
                None => match self.unit.next() {
                    Some(task) => task,
                    None => return Step::End,
                },
            };
            self.unit.run(task, world, env, &mut self.then);
            self.then.drain(..).rev().for_each(|act| self.queue.push_front(act));
        }
    }
}
