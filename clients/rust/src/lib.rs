//! Distributed locks and leader election inside `PostgreSQL`: a client of `lock_election`, on tokio-postgres.
//!
//! A [`Session`] has its own connection and one lease, which it keeps alive. All its holds and waits depend on that
//! lease, so one renewal keeps a thousand locks, and one connection waits for all of them. The session reconnects by
//! itself, and a broken connection loses nothing.
//!
//! ```no_run
//! # async fn example() -> Result<(), lock_election::Error> {
//! let session = lock_election::Session::connect("host=localhost dbname=app user=app").await?;
//! let invoices = session.lock("invoices").await?;
//! invoices.run(async { /* the work, which is dropped if the lock is lost */ }).await?;
//! invoices.release().await?; // or drop it
//! session.close().await
//! # }
//! ```
//!
//! # Deadline
//!
//! The holds of a session are safe until a local deadline: the time at which the last confirmed renewal was sent, plus
//! the validity that the server returned, minus a margin (a twentieth of the TTL, at most 1 s). The clock keeps running
//! while the machine is suspended. At the deadline the token [`Hold::ended`] is cancelled, even if the network hangs,
//! and [`Hold::error`] returns the reason. [`Hold::is_valid`] checks the clock, so that even a process that was stopped
//! notices the loss before its next step. Writes that must not be committed after a loss need [`Hold::fence`].
//!
//! # Runtime
//!
//! The session's task renews the lease. It needs a tokio runtime, with time and I/O enabled, that is not blocked:
//! compute in `spawn_blocking`.

mod arguments;
mod clock;
mod connect;
mod election;
mod error;
mod hold;
mod install;
mod once;
mod session;
#[cfg(feature = "tracing")]
mod spans;
mod state;
mod wire;
mod worker;

pub use arguments::Names;
pub use election::{Election, Leader, Observer, Term};
pub use error::{Error, Kind};
pub use hold::{Acquire, Hold};
pub use install::{INSTALL_SCRIPT, InstallOptions, install};
pub use session::{Options, Session, SessionState};

/// Runs the examples of the README against the server of `make test-clients`, which sets `lock_election_server`.
#[cfg(all(doctest, lock_election_server))]
#[doc = include_str!("../README.md")]
struct Readme;
