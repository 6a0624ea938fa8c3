use std::future::Future;
use std::time::Duration;

use crate::arguments::{check_hold_for, check_names};
use crate::session::Session;
use crate::{Error, Kind};

impl Session {
    /// Runs a job that all replicas start and only one should run. Returns the job's output, or None if another replica
    /// is running the job or has run it within its `hold_for`; this does not wait. The name stays closed until
    /// `hold_for` after the start of the job, even if the job is dropped or its process dies, because the TTL of the
    /// lock is at least `hold_for`.
    ///
    /// ```no_run
    /// # async fn example(session: lock_election::Session) -> Result<(), lock_election::Error> {
    /// let ran = session.once("report of the day", std::time::Duration::from_secs(60), async { 7 }).await?;
    /// println!("{}", if ran.is_some() { "ran here" } else { "ran elsewhere" });
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of a request. `Limit` if `hold_for` exceeds the server's setting `lock_election.max_hold_for` or
    /// `lock_election.max_ttl`. `Lost` if the lock was lost before the end of the job; the job was then dropped, and
    /// another replica may have run it, too.
    pub async fn once<F: Future>(
        &self,
        name: impl Into<String>,
        hold_for: Duration,
        job: F,
    ) -> Result<Option<F::Output>, Error> {
        let name = name.into();
        check_names(std::slice::from_ref(&name))?;
        check_hold_for(hold_for)?;
        // Let the server check hold_for before the job runs. A release without a token releases nothing.
        let sql = "SELECT {schema}.release_lock($1, NULL, $2::pg_catalog.interval)::pg_catalog.text";
        self.handle.0.ask(sql, vec![name.clone(), format!("{} ms", hold_for.as_millis())]).await?;
        let hold = match self.try_lock(name).ttl(self.handle.0.options.ttl.max(hold_for)).await {
            Ok(hold) => hold,
            Err(error) if error.kind() == Kind::NotAcquired => return Ok(None),
            Err(error) => return Err(error),
        };
        hold.keep_closed(hold_for);
        let output = hold.run(job).await?;
        match hold.give_back(hold_for).await {
            Err(error) if matches!(error.kind(), Kind::Lost | Kind::Closed) => Err(error),
            _ => Ok(Some(output)), // ignore other errors: the session keeps retrying the release
        }
    }
}
