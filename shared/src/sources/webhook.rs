//! What a provider's call says. Whose call it is, for which job and attempt, its address says.

use super::{Carrier, Ending, Ignored, Rule, Sources, State, Why};
use crate::event::{EventError, Place, shortened};

/// What a call says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// The attempt ended.
    Ended(Ending),
    /// It has no news.
    Ignored(Ignored),
}

impl Sources {
    /// Reads the body that `provider` (`replicate`, `fal` or `runpod`) sent; `None` for any other name.
    pub fn read_webhook(&self, provider: &str, body: &str) -> Option<Result<Reading, EventError>> {
        let is_it = |rule: &&Rule| rule.row.carrier == Carrier::Webhook && rule.row.source == provider;
        self.rules.iter().find(is_it).map(|rule| rule.read_call(body))
    }
}

impl Rule {
    fn read_call(&self, body: &str) -> Result<Reading, EventError> {
        let unreadable = |problem| EventError::Unreadable { place: Place::Body, problem };
        if !body.trim_ascii_start().starts_with('{') {
            return Err(unreadable(format!("it is {}", shortened(body))));
        }
        serde_json::from_str::<serde::de::IgnoredAny>(body)
            .map_err(|error| unreadable(shortened(&error.to_string())))?;
        let ignored =
            |status, why| Reading::Ignored(Ignored { source: self.row.source, status, job_id: None, why });
        if !self.enabled {
            return Ok(ignored(self.status(body).ok(), Why::Disabled));
        }
        Ok(match self.state(body)? {
            State::InProgress(status) => ignored(Some(status), Why::InProgress),
            State::Ended(ending) => Reading::Ended(ending),
        })
    }
}
