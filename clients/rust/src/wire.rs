//! A connection and the statements on it. Only the session's task uses it.

use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Statement};
use tokio_util::sync::CancellationToken;

use crate::connect::Messages;
use crate::error::TO_INSTALL;
use crate::{Error, Kind};

/// The texts of a result.
pub(crate) type Rows = Vec<Vec<Option<String>>>;

/// A row of `lease_sync`.
pub(crate) struct Row {
    pub(crate) item: Option<i32>,
    pub(crate) event: String,
    pub(crate) kind: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) token: Option<i64>,
    pub(crate) owner: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) sqlstate: Option<String>,
    pub(crate) message: Option<String>,
    pub(crate) detail: Option<String>,
    pub(crate) hint: Option<String>,
    pub(crate) validity_ms: Option<i64>,
    pub(crate) incarnation: Option<i64>,
    pub(crate) news: Option<i64>,
    pub(crate) complete: Option<bool>,
    pub(crate) channel: Option<String>,
}

/// The arguments of `lease_sync`.
pub(crate) struct Call {
    pub(crate) lease: i64,
    pub(crate) number: i64,
    pub(crate) incarnation: Option<i64>,
    pub(crate) news: Option<i64>,
    pub(crate) items: Option<Vec<Option<String>>>,
    pub(crate) wait: Option<String>,
}

const SYNC: &str = "SELECT item, event, kind, name, token, owner, reason, sqlstate, message, detail, hint, \
    pg_catalog.floor(pg_catalog.date_part('epoch', validity) * 1000)::pg_catalog.int8, incarnation, news, complete, \
    channel FROM {schema}.lease_sync($1, $2, $3, $4, $5, $6::pg_catalog.text::pg_catalog.interval)";

const SYNC_TYPES: [Type; 6] = [Type::INT8, Type::INT8, Type::INT8, Type::INT8, Type::TEXT_ARRAY, Type::TEXT];

/// The first statement of a connection. {pid} is the process id from `BackendKeyData`. The portable edition works only
/// in READ COMMITTED, so the statement makes that the default if the backend is the session's own, and not one of a
/// pooler.
const LEARN: &str = "SELECT pg_catalog.quote_ident(n.nspname), pg_catalog.pg_is_in_recovery()::pg_catalog.text, \
    pg_catalog.pg_backend_pid()::pg_catalog.text FROM (VALUES (0)) AS v(v) LEFT JOIN pg_catalog.pg_namespace n \
    ON n.oid OPERATOR(pg_catalog.=) COALESCE((SELECT e.extnamespace FROM pg_catalog.pg_extension e \
    WHERE e.extname OPERATOR(pg_catalog.=) 'lock_election'), (SELECT CASE \
    WHEN pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) {pid} \
    AND pg_catalog.set_config('default_transaction_isolation', 'read committed', false) IS NOT NULL \
    AND pg_catalog.set_config('default_transaction_read_only', 'off', false) IS NULL THEN NULL ELSE p.pronamespace END \
    FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace i ON i.nspname OPERATOR(pg_catalog.=) '_lock_election' \
    AND i.nspowner OPERATOR(pg_catalog.=) p.proowner WHERE p.proname OPERATOR(pg_catalog.=) 'lease_holds' LIMIT 1))";

/// The half of a connection that must be polled, so that messages are sent and read.
struct Link {
    messages: Box<dyn Messages>,
    heard: Vec<String>, // channels of the notifications that were not handled yet
    broken: Option<Error>,
    deadline: Instant,
    abort: CancellationToken,
}

impl Link {
    /// Sends and reads all messages that can be sent and read now.
    fn serve(&mut self, context: &mut Context<'_>) {
        while self.broken.is_none() {
            self.broken = match self.messages.poll(context) {
                Poll::Pending => return,
                Poll::Ready(Some(Ok(AsyncMessage::Notification(n)))) => {
                    self.heard.push(n.channel().to_owned());
                    continue;
                }
                Poll::Ready(Some(Ok(_))) => continue,
                Poll::Ready(Some(Err(error))) => Some(error.into()),
                Poll::Ready(None) => Some(Error::new(Kind::Unavailable, "the connection is closed")),
            };
        }
    }

    /// Waits for a reply until the deadline or until the session is aborted, and serves the connection meanwhile. An
    /// error that concerns more than the statement breaks the connection.
    async fn answer<T>(&mut self, what: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T, Error> {
        let (deadline, abort) = (self.deadline, self.abort.clone());
        let mut what = pin!(what);
        let answered = poll_fn(|context| {
            if let Poll::Ready(done) = what.as_mut().poll(context) {
                return Poll::Ready(done.map_err(Error::from));
            }
            self.serve(context);
            match what.as_mut().poll(context) {
                Poll::Ready(Err(error)) if error.is_closed() && self.broken.is_some() => {}
                Poll::Ready(done) => return Poll::Ready(done.map_err(Error::from)),
                Poll::Pending if self.broken.is_none() => return Poll::Pending,
                Poll::Pending => {}
            }
            Poll::Ready(Err(self.broken.clone().unwrap_or_else(Error::no_answer)))
        });
        let result = tokio::select! {
            biased;
            result = answered => result,
            () = sleep_until(deadline) => Err(Error::no_answer()),
            () = abort.cancelled() => Err(Error::no_answer()),
        };
        if let Err(error) = &result {
            if error.ends_connection() && self.broken.is_none() {
                self.broken = Some(error.clone());
            }
        }
        result
    }
}

#[allow(clippy::struct_excessive_bools)]
pub(crate) struct Wire {
    client: Client,
    link: Link,
    pid: i32,
    /// The extension's schema, quoted.
    pub(crate) schema: String,
    /// Whether `lease_sync` is sent without a prepared statement.
    pub(crate) plain: bool,
    prepared: Option<Statement>,
    /// Whether LISTEN does not work.
    pub(crate) deaf: bool,
    /// Whether a notification has ever arrived.
    pub(crate) hears: bool,
    pub(crate) listens: BTreeSet<String>,
    /// Whether the connection has sent itself a notification, as a test.
    pub(crate) tested: bool,
}

impl Wire {
    /// Reads the properties of the server. Fails if it is a standby, or has no extension. The caller limits the time.
    pub(crate) async fn new(
        (client, messages): (Client, Box<dyn Messages>),
        pid: i32,
        database: &str,
        abort: &CancellationToken,
    ) -> Result<Self, Error> {
        let deadline = Instant::now() + Duration::from_secs(3600);
        let link = Link { messages, heard: Vec::new(), broken: None, deadline, abort: abort.clone() };
        let mut wire = Wire {
            client,
            link,
            pid,
            schema: String::new(),
            plain: false,
            prepared: None,
            deaf: false,
            hears: false,
            listens: BTreeSet::new(),
            tested: false,
        };
        let row = wire.learn().await?;
        if row[1].as_deref() == Some("true") {
            return Err(Error::new(Kind::Unavailable, "the server is a standby"));
        } else if wire.schema.is_empty() {
            let what = format!("lock_election is not installed in database {database:?} ({TO_INSTALL})");
            return Err(Error::new(Kind::NotInstalled, what));
        }
        let pooled = row[2].as_deref() != Some(&pid.to_string());
        (wire.plain, wire.deaf) = (pooled, pooled);
        Ok(wire)
    }

    /// Reads the schema and the other properties of the server. Returns the row of `LEARN`.
    async fn learn(&mut self) -> Result<Vec<Option<String>>, Error> {
        let sql = LEARN.replace("{pid}", &self.pid.to_string());
        let row = self.rows(&sql, &[]).await?.pop().unwrap_or_default();
        self.schema = row.first().cloned().flatten().unwrap_or_default();
        self.prepared = None;
        Ok(row)
    }

    /// Reads the schema again. Returns whether the extension is installed.
    async fn learned(&mut self) -> bool {
        let schema = self.schema.clone();
        let there = self.learn().await.is_ok() && !self.schema.is_empty();
        if !there {
            self.schema = schema;
        }
        there
    }

    /// Runs a call of `lease_sync`.
    pub(crate) async fn sync(&mut self, call: &Call) -> Result<Vec<Row>, Error> {
        match self.sync_once(call).await {
            Err(error) if error.is_no_function() && self.learned().await => self.sync_once(call).await,
            result => result,
        }
    }

    async fn sync_once(&mut self, call: &Call) -> Result<Vec<Row>, Error> {
        let sql = SYNC.replace("{schema}", &self.schema);
        let values: [&(dyn ToSql + Sync); 6] =
            [&call.lease, &call.number, &call.incarnation, &call.news, &call.items, &call.wait];
        let rows = if self.plain {
            let typed: Vec<_> = values.into_iter().zip(SYNC_TYPES).collect();
            self.link.answer(self.client.query_typed(&sql, &typed)).await?
        } else {
            if self.prepared.is_none() {
                self.prepared = Some(self.link.answer(self.client.prepare_typed(&sql, &SYNC_TYPES)).await?);
            }
            let Some(statement) = &self.prepared else { return Err(Error::no_answer()) };
            self.link.answer(self.client.query(statement, &values)).await?
        };
        let rows = rows.iter().map(row_of).collect::<Result<Vec<_>, _>>().map_err(strange)?;
        if rows.is_empty() { Err(Error::new(Kind::Failed, "lease_sync has returned nothing")) } else { Ok(rows) }
    }

    /// Runs a statement whose arguments and results are texts, and in which {schema} is the schema. If the schema was
    /// renamed or the extension was created again, the statement had no effect and is sent once more.
    pub(crate) async fn call(&mut self, sql: &str, args: &[String]) -> Result<Rows, Error> {
        match self.rows(&sql.replace("{schema}", &self.schema), args).await {
            Err(error) if error.is_no_function() && self.learned().await => {
                self.rows(&sql.replace("{schema}", &self.schema), args).await
            }
            result => result,
        }
    }

    async fn rows(&mut self, sql: &str, args: &[String]) -> Result<Rows, Error> {
        let typed: Vec<_> = args.iter().map(|arg| (arg as &(dyn ToSql + Sync), Type::TEXT)).collect();
        let rows = self.link.answer(self.client.query_typed(sql, &typed)).await?;
        let texts = |row: &tokio_postgres::Row| (0..row.len()).map(|n| row.try_get(n)).collect();
        rows.iter().map(texts).collect::<Result<_, _>>().map_err(strange)
    }

    /// Runs several statements.
    pub(crate) async fn batch(&mut self, sql: &str) -> Result<(), Error> {
        self.link.answer(self.client.batch_execute(sql)).await
    }

    /// Waits until it is woken up, a notification arrives, the connection breaks, or the limit passes.
    pub(crate) async fn rest(&mut self, limit: Duration, woken: &Notify) {
        let mut woken = pin!(timeout(limit, woken.notified()));
        poll_fn(|context| {
            self.link.serve(context);
            if self.link.heard.is_empty() && self.link.broken.is_none() {
                return woken.as_mut().poll(context).map(|_| ());
            }
            Poll::Ready(())
        })
        .await;
    }

    /// Sets the time limit of the next statements.
    pub(crate) fn limit(&mut self, limit: Duration) {
        self.link.deadline = Instant::now() + limit;
    }

    pub(crate) fn broken(&self) -> Option<&Error> {
        self.link.broken.as_ref()
    }

    /// The channels of the notifications that have arrived since the last call.
    pub(crate) fn heard(&mut self) -> Vec<String> {
        std::mem::take(&mut self.link.heard)
    }

    /// Sends the server a Terminate message, and closes the connection.
    pub(crate) async fn close(self) {
        let Wire { client, mut link, prepared, .. } = self;
        drop((prepared, client));
        let ended = poll_fn(|context| {
            link.serve(context);
            if link.broken.is_some() { Poll::Ready(()) } else { Poll::Pending }
        });
        _ = timeout(Duration::from_millis(100), ended).await;
    }
}

fn strange(error: tokio_postgres::Error) -> Error {
    Error::from(error).of_kind(Kind::Failed)
}

fn row_of(row: &tokio_postgres::Row) -> Result<Row, tokio_postgres::Error> {
    Ok(Row {
        item: row.try_get(0)?,
        event: row.try_get(1)?,
        kind: row.try_get(2)?,
        name: row.try_get(3)?,
        token: row.try_get(4)?,
        owner: row.try_get(5)?,
        reason: row.try_get(6)?,
        sqlstate: row.try_get(7)?,
        message: row.try_get(8)?,
        detail: row.try_get(9)?,
        hint: row.try_get(10)?,
        validity_ms: row.try_get(11)?,
        incarnation: row.try_get(12)?,
        news: row.try_get(13)?,
        complete: row.try_get(14)?,
        channel: row.try_get(15)?,
    })
}
