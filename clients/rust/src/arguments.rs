//! Checks of arguments that the server would reject later, or would interpret in another way.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use crate::Error;

pub(crate) const MAX_NAMES: usize = 1000; // names of one hold, and of one call of lease_sync
const MAX_NAME: usize = 255; // bytes
const MAX_CANDIDATE: usize = 4096; // bytes
const MAX_TTL: Duration = Duration::from_secs(24 * 24 * 3600); // also of hold_for
const MIN_TTL: Duration = Duration::from_millis(100);

/// One name, or several that are acquired together or not at all.
#[derive(Clone, Debug)]
pub struct Names(pub(crate) Arc<[String]>);

impl From<&str> for Names {
    fn from(name: &str) -> Self {
        Names(Arc::new([name.to_owned()]))
    }
}

impl From<String> for Names {
    fn from(name: String) -> Self {
        Names(Arc::new([name]))
    }
}

impl From<&String> for Names {
    fn from(name: &String) -> Self {
        name.as_str().into()
    }
}

impl<T: Into<String>, const N: usize> From<[T; N]> for Names {
    fn from(names: [T; N]) -> Self {
        Names(names.into_iter().map(Into::into).collect())
    }
}

impl<T: Into<String>> From<Vec<T>> for Names {
    fn from(names: Vec<T>) -> Self {
        Names(names.into_iter().map(Into::into).collect())
    }
}

impl<T: Clone + Into<String>> From<&[T]> for Names {
    fn from(names: &[T]) -> Self {
        Names(names.iter().cloned().map(Into::into).collect())
    }
}

/// Rejects texts that are empty or much too long. The server counts the bytes in its own encoding, in which a text has
/// at least a quarter of its bytes in UTF-8; it rejects the remaining texts that are too long.
fn check_text(what: &str, text: &str, most: usize) -> Result<(), Error> {
    if text.is_empty() || text.len() > 4 * most {
        return Err(Error::invalid(format!("the {what} has {} bytes: it has 1 to {most}", text.len())));
    }
    check_zero(what, text)
}

pub(crate) fn check_zero(what: &str, text: &str) -> Result<(), Error> {
    if text.contains('\0') {
        return Err(Error::invalid(format!("the {what} has a zero byte, which no text in PostgreSQL can have")));
    }
    Ok(())
}

pub(crate) fn check_election(name: &str) -> Result<(), Error> {
    check_text("name of the election", name, MAX_NAME)
}

pub(crate) fn check_candidate(text: &str) -> Result<(), Error> {
    check_text("candidate", text, MAX_CANDIDATE)
}

pub(crate) fn check_names(names: &[String]) -> Result<(), Error> {
    if names.is_empty() || names.len() > MAX_NAMES {
        return Err(Error::invalid(format!("there are {} names: a hold has 1 to {MAX_NAMES}", names.len())));
    }
    check_distinct(names)
}

pub(crate) fn check_distinct(names: &[String]) -> Result<(), Error> {
    let mut seen = HashSet::new();
    for name in names {
        check_text("name", name, MAX_NAME)?;
        if !seen.insert(name) {
            return Err(Error::invalid(format!("the name {name:.100?} appears twice")));
        }
    }
    Ok(())
}

/// Returns the TTL, rounded down to milliseconds.
pub(crate) fn check_ttl(ttl: Duration) -> Result<Duration, Error> {
    if ttl < MIN_TTL || ttl > MAX_TTL {
        return Err(Error::invalid(format!("the TTL is {ttl:?}: it is from 100 ms to 24 days")));
    }
    Ok(Duration::from_nanos(ttl.as_nanos().try_into().unwrap_or(u64::MAX) / 1_000_000 * 1_000_000))
}

pub(crate) fn check_hold_for(hold_for: Duration) -> Result<(), Error> {
    if hold_for > MAX_TTL {
        return Err(Error::invalid(format!("hold_for is {hold_for:?}: it is from 0 to 24 days")));
    }
    Ok(())
}
