//! The data device: one request after the other.

use super::world::{Bio, PoolWorld};
use super::{DISK, WORK};
use crate::replay::costs::Costs;
use crate::replay::engine::{Env, Program, Step};

/// The device's own program. It is not needed where moving data costs nothing.
#[derive(Debug, Default)]
pub struct Disk {
    current: Option<Bio>,
}

/// Sends a part on to the data device; it is complete when the device says so.
pub fn submit(bio: Bio, costs: &Costs, world: &mut PoolWorld<'_>, env: &mut Env<'_>) {
    if costs.data == 0 {
        world.complete(bio.request, env);
    } else {
        world.disk.push_back(bio);
        env.notify(DISK, 0);
    }
}

impl<'a> Program<PoolWorld<'a>> for Disk {
    fn step(&mut self, world: &mut PoolWorld<'a>, env: &mut Env<'_>) -> Step {
        env.label = "data device";
        if let Some(bio) = self.current.take() {
            world.complete(bio.request, env);
            env.notify(WORK, 0);
        }
        match world.disk.pop_front() {
            None => Step::Wait(DISK),
            Some(bio) => {
                self.current = Some(bio);
                Step::Cpu(world.disk_time(&bio))
            }
        }
    }
}
