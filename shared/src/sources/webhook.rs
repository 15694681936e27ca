//! What a provider's call says. Whose call it is, for which job and attempt, its address says.

use std::str::FromStr;

use super::{Carrier, Ending, Ignored, Rule, Sources, State, Why};
use crate::event::{EventError, Place, shortened};

/// Who calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// replicate.com.
    Replicate,
    /// fal.ai.
    Fal,
    /// runpod.io.
    RunPod,
}

impl Provider {
    /// Every one, in the order of the table.
    pub const ALL: [Self; 3] = [Self::Replicate, Self::Fal, Self::RunPod];

    /// Its name in the table, in `EVENT_SOURCES` and in addresses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Replicate => "replicate",
            Self::Fal => "fal",
            Self::RunPod => "runpod",
        }
    }
}

impl FromStr for Provider {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|provider| provider.as_str() == name);
        known.ok_or_else(|| format!("is none of {}", Self::ALL.map(Self::as_str).join(", ")))
    }
}

/// What a call says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// The attempt ended.
    Ended(Ending),
    /// It has no news.
    Ignored(Ignored),
}

impl Sources {
    /// Reads the body that `provider` sent.
    ///
    /// # Errors
    /// [`EventError`] names the place, what stands there and what should.
    pub fn read_webhook(&self, provider: Provider, body: &str) -> Result<Reading, EventError> {
        let is_it =
            |rule: &&Rule| rule.row.carrier == Carrier::Webhook && rule.row.source == provider.as_str();
        self.rules.iter().find(is_it).expect("each provider has a row, see the tests").read_call(body)
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
