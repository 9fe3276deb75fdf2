//! The data device: one request after the other.

use super::numbers::DISK;
use super::world::{PoolWorld, Transfer};
use crate::replay::engine::{Env, Program, Step};

/// The device's own program. It is not needed where moving data costs nothing.
#[derive(Debug, Default)]
pub struct Disk {
    current: Option<Transfer>,
}

impl<'a> Program<PoolWorld<'a>> for Disk {
    fn step(&mut self, world: &mut PoolWorld<'a>, env: &mut Env<'_>) -> Step {
        env.label = "data device";
        if let Some(transfer) = self.current.take() {
            world.transferred(transfer, env);
        }
        match world.disk.pop_front() {
            None => Step::Wait(DISK),
            Some(transfer) => {
                self.current = Some(transfer);
                Step::Cpu(world.disk_time(transfer.bytes))
            }
        }
    }
}
