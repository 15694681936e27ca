//! A bar on stderr for work that takes a while, where a person looks at it.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Progress through a known amount of work, or, without one, just that it goes on.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Counts `unit`s up to `total`. Hidden unless stderr is a terminal and `wanted`.
    pub(crate) fn new(total: Option<u64>, unit: &str, wanted: bool) -> Self {
        if !wanted || !std::io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let (bar, template) = match total {
            Some(total) => (ProgressBar::new(total), "{bar:40} {percent:>3}%  {msg}  {eta} left"),
            None => (ProgressBar::no_length(), "{spinner} {pos} {msg}"),
        };
        bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(8));
        let style = ProgressStyle::with_template(template).expect("the templates above are well formed");
        Self(bar.with_style(style).with_message(unit.to_owned()))
    }

    /// So much is done.
    pub(crate) fn at(&self, position: u64) {
        self.0.set_position(position);
    }

    /// Writes a line to stderr, above the bar.
    pub(crate) fn say(&self, line: &str) {
        self.0.suspend(|| eprintln!("{line}"));
    }

    /// The bar goes away.
    pub(crate) fn done(&self) {
        self.0.finish_and_clear();
    }
}
