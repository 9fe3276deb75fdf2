//! What a person sees of a long run: a bar with an estimate on a terminal, now and then a line elsewhere.
//!
//! Nothing is drawn before half a second has passed, and no thread ticks: a run that takes milliseconds pays for a
//! clock reading per batch of work, and is never held back at its end.

use super::output;
use crate::base::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::fmt;
use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A run shorter than this shows no bar.
const BAR_AFTER: Duration = Duration::from_millis(500);
const BAR_EVERY: Duration = Duration::from_millis(100);
/// Lines go to logs: few of them.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Draws on standard error.
pub struct Reporter {
    started: Instant,
    /// Milliseconds from the start at which something is due.
    due: AtomicU64,
    every: Duration,
    done: AtomicU64,
    state: Mutex<State>,
}

struct State {
    title: String,
    total: u64,
    face: Face,
}

enum Face {
    Bar(Option<ProgressBar>),
    Lines { titled: bool, write: Box<dyn FnMut(&str) + Send> },
}

impl Reporter {
    /// A bar if standard error is a terminal, otherwise lines.
    pub fn stderr() -> Self {
        if io::stderr().is_terminal() {
            Self::new(BAR_AFTER, BAR_EVERY, Face::Bar(None))
        } else {
            Self::lines(LINE_EVERY, Box::new(output::complain))
        }
    }

    fn lines(every: Duration, write: Box<dyn FnMut(&str) + Send>) -> Self {
        Self::new(every, every, Face::Lines { titled: false, write })
    }

    fn new(first: Duration, every: Duration, face: Face) -> Self {
        Reporter {
            started: Instant::now(),
            due: AtomicU64::new(millis(first)),
            every,
            done: AtomicU64::new(0),
            state: Mutex::new(State { title: String::new(), total: 0, face }),
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Progress for Reporter {
    fn section(&self, title: &str, total: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.title = title.to_string();
        state.total = total;
        self.done.store(0, Ordering::Relaxed);
        match &mut state.face {
            Face::Bar(Some(bar)) => begin(bar, title, total),
            Face::Bar(None) => {}
            Face::Lines { titled, .. } => *titled = false,
        }
    }

    fn advance(&self, units: u64) {
        let done = self.done.fetch_add(units, Ordering::Relaxed).saturating_add(units);
        let now = millis(self.started.elapsed());
        if now < self.due.load(Ordering::Relaxed) {
            return;
        }
        // Whoever comes while another draws has nothing to add.
        if let Ok(mut state) = self.state.try_lock() {
            self.due.store(now.saturating_add(millis(self.every)), Ordering::Relaxed);
            state.show(done);
        }
    }
}

impl State {
    fn show(&mut self, done: u64) {
        match &mut self.face {
            Face::Bar(bar) => {
                let bar = bar.get_or_insert_with(|| {
                    let bar = ProgressBar::hidden();
                    begin(&bar, &self.title, self.total);
                    bar.set_draw_target(ProgressDrawTarget::stderr());
                    bar
                });
                bar.set_position(done);
            }
            Face::Lines { titled, write } => {
                let mut text = String::new();
                if !*titled && !self.title.is_empty() {
                    text = format!("{}\n", self.title);
                }
                *titled = true;
                if let Some(percent) = percent(done, self.total) {
                    text.push_str(&format!("Progress: {percent}%\n"));
                }
                write(&text);
            }
        }
    }
}

/// `None` where the total is not known.
fn percent(done: u64, total: u64) -> Option<u128> {
    let done = u128::from(done.min(total));
    (done * 100).checked_div(u128::from(total))
}

const WITH_TOTAL: &str = "{msg} [{bar:30}] {percent}% (about {eta} left)";
const WITHOUT_TOTAL: &str = "{msg} {pos}";

fn begin(bar: &ProgressBar, title: &str, total: u64) {
    let template = if total == 0 { WITHOUT_TOTAL } else { WITH_TOTAL };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    if total == 0 {
        bar.unset_length()
    } else {
        bar.set_length(total)
    }
    bar.set_message(title.to_string());
    bar.reset();
}

impl Drop for Reporter {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Face::Bar(Some(bar)) = &state.face {
            bar.finish_and_clear();
        }
    }
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reporter").field("done", &self.done).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::{Reporter, percent};
    use crate::base::Progress;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    fn said(every: Duration, work: impl Fn(&Reporter)) -> String {
        let text = Arc::new(Mutex::new(String::new()));
        let sink = Arc::clone(&text);
        work(&Reporter::lines(every, Box::new(move |line| sink.lock().unwrap().push_str(line))));
        text.lock().unwrap().clone()
    }

    #[test]
    fn lines_have_a_title_once_per_section() {
        let text = said(Duration::ZERO, |reporter| {
            reporter.section("one", 8);
            reporter.advance(2);
            reporter.advance(2);
            reporter.section("two", 0);
            reporter.advance(2);
        });
        assert_eq!(text, "one\nProgress: 25%\nProgress: 50%\ntwo\n");
    }

    #[test]
    fn a_short_run_says_nothing() {
        let text = said(Duration::from_secs(3600), |reporter| {
            reporter.section("one", 8);
            reporter.advance(8);
        });
        assert_eq!(text, "");
    }

    #[test]
    fn templates_are_valid() {
        for template in [super::WITH_TOTAL, super::WITHOUT_TOTAL] {
            assert!(indicatif::ProgressStyle::with_template(template).is_ok());
        }
    }

    #[test]
    fn percent_stays_within_bounds() {
        assert_eq!(percent(u64::MAX, u64::MAX), Some(100));
        assert_eq!(percent(9, 3), Some(100));
        assert_eq!(percent(1, 3), Some(33));
        assert_eq!(percent(1, 0), None);
    }
}
