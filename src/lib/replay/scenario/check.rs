//! One published figure, the band in which the model has to come out, and what did come out.

use serde::Serialize;

/// How a check is to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Kind {
    /// An order that has to hold.
    Order,
    /// A ratio in a band.
    Ratio,
    /// The figure was used to set a parameter: checked for consistency only.
    Fitted,
    /// Recorded, never judged.
    Excluded,
}

/// A check.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// Its name in the acceptance table.
    pub id: String,
    /// What is compared.
    pub what: String,
    /// What was reported.
    pub reported: String,
    /// What came out.
    pub got: String,
    /// Where it has to be.
    pub band: String,
    /// How it is to be taken.
    pub kind: Kind,
    /// Whether it holds; nothing where it is not judged.
    pub pass: Option<bool>,
}

/// A number with as many digits as matter.
pub fn number(value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 100.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        size if size >= 0.01 => format!("{value:.3}"),
        size if size >= 0.0001 => format!("{value:.5}"),
        _ => format!("{value:.1e}"),
    }
}

impl Check {
    /// All values have to be in the band, both ends included.
    pub fn ratios(
        id: &str,
        what: &str,
        reported: &str,
        kind: Kind,
        values: &[f64],
        (least, most): (f64, f64),
    ) -> Check {
        Check {
            id: id.into(),
            what: what.into(),
            reported: reported.into(),
            got: values.iter().map(|value| number(*value)).collect::<Vec<_>>().join(" / "),
            band: format!("{}-{}", number(least), number(most)),
            kind,
            pass: Some(values.iter().all(|value| (least..=most).contains(value))),
        }
    }

    /// An order or another condition.
    pub fn holds(id: &str, what: &str, reported: &str, got: String, band: &str, holds: bool) -> Check {
        let (id, what, reported, band) = (id.into(), what.into(), reported.into(), band.into());
        Check { id, what, reported, got, band, kind: Kind::Order, pass: Some(holds) }
    }

    /// What is recorded and never judged.
    pub fn excluded(id: &str, what: &str, reported: &str, got: String) -> Check {
        let (id, what, reported, band) = (id.into(), what.into(), reported.into(), "none".into());
        Check { id, what, reported, got, band, kind: Kind::Excluded, pass: None }
    }

    /// The same without a verdict, where this run can't give one.
    pub fn unjudged(mut self, why: &str) -> Check {
        self.pass = None;
        self.band = format!("{} ({why})", self.band);
        self
    }

    pub(super) fn row(&self) -> Vec<String> {
        let verdict = match self.pass {
            Some(true) => "pass",
            Some(false) => "FAIL",
            None => "not judged",
        };
        let kind = format!("{:?}", self.kind).to_lowercase();
        [&self.id, &self.what, &self.reported, &self.got, &self.band, &kind, verdict].map(String::from).to_vec()
    }
}
