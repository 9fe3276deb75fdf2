//! Traces from a seed.

use super::{Stream, Trace};
use crate::base::{Random, ThinId};
use crate::replay::pool::{Event, Verb, When};

/// Names of the generators, and what they make.
pub const NAMES: [(&str, &str); 7] = [
    ("s1-write", "a new device is written while device 1 is deleted"),
    ("s1-read", "a new device is read while device 1 is deleted"),
    ("s2-seq", "a new device is written in order"),
    ("s2-random", "a new device is written at random places"),
    ("s3-mkfs", "large regular gaps, as mkfs writes"),
    ("s4-writers", "four new devices are written at once"),
    ("s5-stream", "25000 requests of 1 MiB in order"),
];

/// The first device that a generated trace makes.
const NEW: u64 = 1_000_000;

/// Makes a trace for a pool with blocks of so many sectors; `None` where there is no such generator.
pub fn generate(name: &str, seed: u64, block: u64, requests: u64) -> Option<Trace> {
    let mut trace = Trace::default();
    let (mut random, asap) = (Random::new(seed), |verb| Event { when: When::Asap, verb });
    for (key, value) in [("clock", "us".to_string()), ("pool_block", block.to_string()), ("source", name.to_string())] {
        trace.header.insert(key.into(), value);
    }
    let writers = if name == "s4-writers" { 4 } else { 1 };
    for writer in 0..writers {
        let dev = ThinId(NEW + writer);
        let mut events = vec![asap(Verb::Create { dev })];
        for index in 0..requests {
            let write = |off, len| Verb::Write { dev, off, len, fua: false };
            events.push(asap(match name {
                "s1-write" | "s2-seq" | "s4-writers" => write(index * block, block),
                "s1-read" => Verb::Read { dev, off: index * block, len: block },
                "s2-random" => write(random.below(requests) * block, block),
                "s3-mkfs" => write(index * block * 16, block.min(64)),
                "s5-stream" => write(index * 2048, 2048),
                _ => return None,
            }));
        }
        trace.streams.push(Stream { name: format!("w{writer}"), depth: Some(8), dev: Some(dev), events });
    }
    if name.starts_with("s1-") {
        let delete = Event { when: When::At(200_000_000), verb: Verb::Delete { dev: ThinId(1), policy: None } };
        trace.streams.push(Stream { name: "d".into(), events: vec![delete], ..Stream::default() });
    }
    Some(trace)
}
