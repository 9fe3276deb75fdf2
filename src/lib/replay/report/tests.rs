use super::*;
use crate::base::ThinId;
use crate::replay::costs::Costs;
use crate::replay::policy::Policy;
use crate::replay::pool;
use crate::replay::scenario::delete::{self, Load};
use crate::thin::live::Base;

fn reports() -> Vec<PolicyReport> {
    let source = delete::image(512, 50, 0).unwrap();
    let base = Base::open(&source).unwrap();
    let report = |policy| {
        let options = RunOptions {
            timeline: true,
            until_deletes: 1,
            log_touches: true,
            ..RunOptions::new(Policy::parse(policy).unwrap(), Costs::standard())
        };
        let mut outcome = pool::run(&base, delete::streams(Load::Write, true, 8), &options).unwrap();
        let state = delete::soundness(&mut outcome).unwrap();
        PolicyReport::of(&mut outcome, &options, state, Some(Layout { data: 5, chunk: 512 }))
    };
    vec![report("coarse"), report("batch(1)")]
}

#[test]
fn reports_say_what_happened_and_are_the_same_again() {
    let first = reports();
    let json = serde_json::to_string(&first).unwrap();
    assert_eq!(json, serde_json::to_string(&reports()).unwrap());
    let picture = svg("a & b", &first, None);
    assert_eq!(picture, svg("a & b", &reports(), None));
    assert!(picture.contains("a &amp; b") && picture.ends_with("</svg>\n"));
    assert_ne!(picture, svg("a & b", &first, Some((0.1, 0.2))));
    let text = table(&first, &Costs::standard(), "virtual");
    assert!(text.contains("order: batch(1) > coarse"), "{text}");
    let stall = first[0].longest_stall().unwrap();
    assert!(stall.holder == "delete" && stall.length * 100 > first[0].delete_time.unwrap() * 95, "{stall:?}");
    assert!(first.iter().all(|report| report.sound && report.touch.distinct.is_some_and(|distinct| distinct > 10)));
    assert!(first[1].alloc.stripes.is_some_and(|stripes| stripes.partial > 100 && stripes.full == 0));
    assert_eq!(first[1].alloc.fragments.keys().collect::<Vec<_>>(), [&ThinId(2).0]);
}
