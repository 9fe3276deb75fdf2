use super::*;
use crate::base::ThinId;
use crate::replay::calibration::Calibration;
use crate::replay::costs::Costs;
use crate::replay::policy::Policy;
use crate::replay::pool;
use crate::replay::scenario::delete::{self, Load};
use crate::thin::live::Base;

fn reports() -> Vec<PolicyReport> {
    zoomed(None)
}

fn zoomed(zoom: Option<(Ns, Ns)>) -> Vec<PolicyReport> {
    let source = delete::image(512, 50, 0).unwrap();
    let base = Base::open(&source).unwrap();
    let report = |policy| {
        let options = RunOptions {
            timeline: true,
            zoom,
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
    let picture = svg("a & b", &first);
    assert_eq!(picture, svg("a & b", &reports()));
    assert!(picture.contains("a &amp; b") && picture.ends_with("</svg>\n"));
    assert_ne!(picture, svg("a & b", &zoomed(Some((100_000_000, 200_000_000)))));
    assert!(picture.contains("ms, delete: walk") && picture.contains("pool lock"));
    let costs = Costs::standard();
    let text = table(&first, &costs, &Calibration::new(&costs, None), "virtual");
    assert!(text.contains("uncalibrated: ") && text.contains("leaf-fill=126"), "{text}");
    assert!(text.contains("order: batch(1) > coarse"), "{text}");
    let stall = first[0].longest_stall().unwrap();
    assert!(stall.holder == "delete" && stall.length * 100 > first[0].delete_time.unwrap() * 95, "{stall:?}");
    assert!(first.iter().all(|report| report.sound && report.touch.distinct.is_some_and(|distinct| distinct > 10)));
    assert!(first[1].alloc.stripes.is_some_and(|stripes| stripes.partial > 100 && stripes.full == 0));
    assert_eq!(first[1].alloc.fragments.keys().collect::<Vec<_>>(), [&ThinId(2).0]);
}

#[test]
fn the_order_says_when_it_hangs_on_the_lock_or_on_too_few_boundaries() {
    let [coarse, batch] = <[PolicyReport; 2]>::try_from(reports()).unwrap();
    let under = |report: &PolicyReport, lock, rate| PolicyReport { lock, rate, ..report.clone() };
    let all = [coarse.clone(), batch.clone(), under(&coarse, "fifo", 2.0), under(&batch, "fifo", 1.0)];
    let costs = Costs::standard();
    let text = |reports: &[PolicyReport]| table(reports, &costs, &Calibration::new(&costs, None), "virtual");
    let told = text(&all);
    assert!(told.contains("order (rwsem-2016): batch(1) > coarse\norder (fifo): coarse > batch(1)\n"), "{told}");
    assert!(told.contains("depends on the flavour"), "{told}");
    assert!(!text(&all[..2]).contains("depends on the flavour"));
    let equal = PolicyReport { rate: batch.rate, ..coarse.clone() };
    assert!(text(&[batch.clone(), equal]).contains("order: batch(1) = coarse\n"));
    let ratios = Ratios { boundaries: 19, ..batch.ratios.unwrap() };
    let noise = PolicyReport { ratios: Some(ratios), ..batch.clone() };
    let told = text(&[coarse.clone(), noise]);
    assert!(told.contains("order: coarse\nnot in the order, with fewer than 20 boundaries: batch(1)\n"), "{told}");
    let ratios = batch.ratios.unwrap();
    assert!((1.7..2.0).contains(&ratios.hold) && (0.9..=1.0).contains(&ratios.duty), "{ratios:?}");
    assert!((0.015..0.02).contains(&ratios.wake) && ratios.boundaries > 300, "{ratios:?}");
}

#[test]
fn phases_lie_between_marks() {
    let marks = [(100, "a".to_string(), 10), (100, "b".to_string(), 10), (300, "c".to_string(), 50)];
    let phases = phases(&marks, 400, 60);
    let told: Vec<_> = phases.iter().map(|phase| (phase.name.as_str(), phase.begin, phase.end, phase.bytes)).collect();
    assert_eq!(told, [("", 0, 100, 10), ("b", 100, 300, 40), ("c", 300, 400, 10)]);
    assert_eq!(phases[1].rate, 40.0 * 1e9 / 200.0);
}
