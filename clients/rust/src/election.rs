use std::collections::VecDeque;
use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use crate::arguments::{check_candidate, check_election};
use crate::clock::jitter;
use crate::hold::{Acquire, Asked, Hold};
use crate::session::Session;
use crate::state::Item;
use crate::{Error, Kind};

/// Interval at which an observer reads the history if no notification arrives.
const READ_EVERY: Duration = Duration::from_secs(1);

/// Reads the last change, or the current leader if the history has no change.
const PRESENT: &str = "SELECT p.change::pg_catalog.text, p.term::pg_catalog.text, p.how, p.candidate FROM \
    (SELECT change, term, how, candidate FROM {schema}.election_history($1, $2::pg_catalog.int8) \
    UNION ALL SELECT 0, term, 'elected', candidate FROM (VALUES (0)) AS v(v) \
    LEFT JOIN {schema}.current_leader($1) ON true) AS p ORDER BY p.change DESC LIMIT 1";
const HISTORY: &str = "SELECT h.change::pg_catalog.text, h.term::pg_catalog.text, h.how, h.candidate \
    FROM {schema}.election_history($1, $2::pg_catalog.int8) AS h ORDER BY h.change";

impl Session {
    /// The election with this name, without a call to the server. The name has 1 to 255 bytes.
    #[must_use]
    pub fn election(&self, name: impl Into<String>) -> Election {
        Election { session: self.clone(), name: name.into() }
    }
}

/// One session's side of an election.
#[derive(Clone, Debug)]
pub struct Election {
    session: Session,
    name: String,
}

/// The leader of an election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// The public text of the candidate.
    pub candidate: String,
    /// The term, which is higher than every earlier one.
    pub term: i64,
}

impl Leader {
    fn new(candidate: Option<&String>, term: Option<&String>) -> Option<Self> {
        Some(Leader { candidate: candidate?.clone(), term: term?.parse().ok()? })
    }
}

/// A term as the leader: a [`Hold`] whose token is the number of the term. When it is dropped, the session resigns,
/// without waiting.
#[derive(Debug)]
pub struct Term(Hold);

impl From<Hold> for Term {
    fn from(hold: Hold) -> Self {
        Term(hold)
    }
}

impl Deref for Term {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.0
    }
}

impl Term {
    /// Changes the leader's public text, without a new election.
    ///
    /// # Errors
    /// `Lost` if this candidate no longer leads; `Unknown` if the server does not reply in time.
    pub async fn proclaim(&self, candidate: &str) -> Result<(), Error> {
        check_candidate(candidate)?;
        if !self.is_valid() {
            return Err(Error::lost("this candidate does not lead any more"));
        }
        let item =
            Item::new("proclaim", self.names().into(), Some(self.token().to_string()), Some(candidate.to_owned()));
        let asked = Asked::new(self.session().handle, item, self.ttl());
        asked.attend(Instant::now(), Some(Duration::ZERO)).await.map_err(|error| match error.kind() {
            Kind::Unavailable => error.of_kind(Kind::Unknown),
            _ => error,
        })
    }

    /// Ends the term.
    ///
    /// # Errors
    /// The errors of [`Hold::release`].
    pub async fn resign(self) -> Result<(), Error> {
        self.0.release().await
    }
}

impl Election {
    /// Waits to be elected, in the order of arrival. The candidate's public text has 1 to 4096 bytes.
    ///
    /// ```no_run
    /// # async fn example(session: lock_election::Session) -> Result<(), lock_election::Error> {
    /// let term = session.election("scheduler").campaign("node-1").await?;
    /// term.proclaim("node-1, busy").await?;
    /// term.resign().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn campaign(&self, candidate: impl Into<String>) -> Acquire<Term> {
        Acquire::new(&self.session, self.name.as_str().into(), Some(candidate.into()))
    }

    /// Like `campaign`, but does not wait.
    pub fn try_campaign(&self, candidate: impl Into<String>) -> Acquire<Term> {
        self.campaign(candidate).wait(Duration::ZERO)
    }

    /// Returns the current leader; None if there is none.
    ///
    /// # Errors
    /// An error of the server; `Unavailable` if it does not reply in time.
    pub async fn leader(&self) -> Result<Option<Leader>, Error> {
        check_election(&self.name)?;
        let sql = "SELECT candidate, term::pg_catalog.text FROM {schema}.current_leader($1)";
        let rows = self.session.handle.0.ask(sql, vec![self.name.clone()]).await?;
        Ok(rows.first().and_then(|row| Leader::new(row[0].as_ref(), row[1].as_ref())))
    }

    /// Returns an observer, which reports the current leader first, and then each change in order, without gaps.
    #[must_use]
    pub fn observe(&self) -> Observer {
        Observer { election: self.clone(), number: None, hint: Arc::default(), changes: VecDeque::new(), after: None }
    }

    /// Campaigns repeatedly, until this future is dropped or a permanent error occurs, which it returns. When elected,
    /// runs the work that `lead` returns, and drops that work if the term is lost. Resigns only after the work has
    /// ended. If the session is lost, continues with a new session of its own.
    ///
    /// ```no_run
    /// # async fn example(session: lock_election::Session) -> Result<(), lock_election::Error> {
    /// let scheduler = session.election("scheduler");
    /// tokio::select! {
    ///     error = scheduler.lead("node-1", async |term| println!("leads, term {}", term.token())) => Err(error),
    ///     () = tokio::time::sleep(std::time::Duration::from_secs(60)) => Ok(()), // drops the candidacy
    /// }
    /// # }
    /// ```
    pub async fn lead<F, W>(&self, candidate: &str, mut lead: F) -> Error
    where
        F: FnMut(Arc<Term>) -> W,
        W: Future,
    {
        let mut own = self.clone();
        let mut failures = 0;
        loop {
            let mut result = match own.campaign(candidate).await {
                Ok(term) => {
                    failures = 0;
                    let term = Arc::new(term);
                    _ = term.run(lead(term.clone())).await;
                    _ = term.give_back(Duration::ZERO).await;
                    Ok(())
                }
                Err(error) => Err(error),
            };
            match own.session.error() {
                Some(error) if error.kind() == Kind::Closed => return error,
                Some(_) => result = own.session.reopen().await.map(|session| own.session = session),
                None => {}
            }
            if let Err(error) = result {
                if matches!(error.kind(), Kind::Invalid | Kind::Denied | Kind::NotInstalled) {
                    return error;
                }
                sleep(jitter((Duration::from_millis(100) * (1 << failures.min(10))).min(Duration::from_secs(5)))).await;
                failures += 1;
            }
        }
    }
}

/// The changes of an election: see [`Election::observe`].
pub struct Observer {
    election: Election,
    number: Option<u64>, // of the registration for notifications
    hint: Arc<Notify>,
    changes: VecDeque<Option<Leader>>,
    after: Option<i64>, // the last change that was read
}

impl Drop for Observer {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.election.session.handle.0.lock().observers.remove(&number);
            self.election.session.handle.0.work.notify_one();
        }
    }
}

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observer").field("election", &self.election.name).finish_non_exhaustive()
    }
}

impl Observer {
    /// Waits for the next change, and returns the leader, or None if there is none. No change is lost if this future is
    /// dropped.
    ///
    /// # Errors
    /// The reason why the session has ended, or `Invalid` for an invalid name. After any other error, reads again.
    pub async fn next(&mut self) -> Result<Option<Leader>, Error> {
        check_election(&self.election.name)?;
        loop {
            if let Some(change) = self.changes.pop_front() {
                return Ok(change);
            }
            if let Some(error) = self.election.session.error() {
                return Err(error);
            }
            self.register().await;
            self.read().await;
            if self.changes.is_empty() {
                _ = timeout(READ_EVERY, self.hint.notified()).await;
            }
        }
    }

    /// Makes the session listen on the election's channel.
    async fn register(&mut self) {
        let inner = &self.election.session.handle.0;
        if self.number.is_some() {
            return;
        }
        let Ok(rows) = inner.ask("SELECT {schema}.observe_election($1)", vec![self.election.name.clone()]).await else {
            return;
        };
        if let Some(channel) = rows.into_iter().flatten().next().flatten() {
            let mut state = inner.lock();
            let number = state.next_number();
            state.observers.insert(number, (channel, self.hint.clone()));
            self.number = Some(number);
            inner.work.notify_one();
        }
    }

    /// Reads the changes after the last one that was read, or the current leader.
    async fn read(&mut self) {
        let sql = if self.after.is_some() { HISTORY } else { PRESENT };
        let args = vec![self.election.name.clone(), self.after.unwrap_or(0).to_string()];
        for row in self.election.session.handle.0.ask(sql, args).await.unwrap_or_default() {
            let leads = matches!(row[2].as_deref(), Some("elected" | "proclaimed"));
            self.changes.push_back(Leader::new(row[3].as_ref(), row[1].as_ref()).filter(|_| leads));
            self.after = row[0].as_ref().and_then(|change| change.parse().ok());
        }
    }
}
