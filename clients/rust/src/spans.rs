//! Spans and events of `tracing`, with the feature of that name: see the README. They are created without the session's
//! mutex, because a subscriber may call the session.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use tokio_util::sync::CancellationToken;
use tracing::field::{Empty, debug, display};
use tracing::{Span, info, info_span, warn};

use crate::session::Inner;
use crate::{Error, Kind};

/// The span of a request that has no result yet.
pub(crate) struct Acquiring {
    caller: Span,
    span: Span,
    names: Arc<[String]>,
    mode: &'static str,
}

impl Acquiring {
    pub(crate) fn new(action: &'static str, names: &Arc<[String]>) -> Self {
        let mode = match action.split_once('_') {
            Some((_, "candidate")) => "election",
            Some((_, mode)) => mode,
            None => action,
        };
        let (caller, names) = (Span::current(), names.clone());
        let span = info_span!(parent: &caller, "acquire lock", lock_election.names = ?names, lock_election.mode = mode,
            lock_election.token = Empty, lock_election.outcome = Empty, error.r#type = Empty, error.message = Empty,
            otel.status_code = Empty);
        Acquiring { caller, span, names, mode }
    }

    pub(crate) fn refused(self, error: &Error) {
        end(&self.span, "not_acquired", Some(error));
    }

    /// Ends the span of the wait, and begins the span of the hold. A separate task ends that at the end of the hold.
    pub(crate) fn granted(self, token: i64, ended: CancellationToken, reason: Arc<OnceLock<Error>>) {
        self.span.record("lock_election.token", token);
        end(&self.span, "acquired", None);
        let (names, mode) = (self.names, self.mode);
        let span = info_span!(parent: &self.caller, "hold lock", lock_election.names = ?names,
            lock_election.mode = mode, lock_election.token = token, lock_election.outcome = Empty,
            error.r#type = Empty, error.message = Empty, otel.status_code = Empty);
        tokio::spawn(async move {
            ended.cancelled().await;
            match reason.get().filter(|error| error.kind() == Kind::Lost) {
                Some(error) => {
                    span.in_scope(|| warn!(error = %error, "the lock is lost"));
                    end(&span, "lost", Some(error));
                }
                None => end(&span, "released", None),
            }
        });
    }
}

fn end(span: &Span, outcome: &'static str, error: Option<&Error>) {
    span.record("lock_election.outcome", outcome);
    if let Some(error) = error.filter(|error| !matches!(error.kind(), Kind::NotAcquired | Kind::Closed)) {
        span.record("error.type", debug(error.kind()));
        span.record("error.message", display(error));
        span.record("otel.status_code", "ERROR");
    }
}

/// The session's state that was reported last.
#[derive(Default)]
pub(crate) struct Reported {
    suspended: Option<Span>,
}

impl Reported {
    /// Reports the changes of the session since the last call. A subscriber that panics does not end the session.
    pub(crate) fn look(&mut self, inner: &Inner) {
        let (failures, trouble, error) = {
            let state = inner.lock();
            (state.failures, state.trouble.clone(), state.error.clone())
        };
        _ = catch_unwind(AssertUnwindSafe(|| match (error, &self.suspended) {
            (Some(error), _) if error.kind() == Kind::Lost => warn!(error = %error, "the session has ended"),
            (None, None) if failures > 0 => {
                self.suspended = Some(info_span!(parent: None, "suspend session"));
                warn!(error = trouble.map(display), "the session is suspended");
            }
            (None, Some(_)) if failures == 0 => {
                self.suspended = None;
                info!("the session is resumed");
            }
            _ => {}
        }));
    }
}
