//! The spans and events of the feature `tracing`, as a subscriber sees them, on the server of `DATABASE_URL`; without
//! it these tests do nothing.
#![cfg(feature = "tracing")]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lock_election::{Kind, Options, SessionState};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Instrument, Subscriber, info_span};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Registry};

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// A span that has ended, or an event, whose name is its message.
#[derive(Clone, Debug)]
struct Seen {
    name: String,
    parent: Option<String>,
    fields: BTreeMap<String, String>,
    took: Duration,
}

struct Open {
    began: Instant,
    fields: Fields,
}

#[derive(Default)]
struct Fields(BTreeMap<String, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().trim_start_matches("r#").to_owned(), format!("{value:?}"));
    }
}

/// Keeps what it sees, and panics at the end of holds of this name.
#[derive(Clone)]
struct Keeper {
    seen: Arc<Mutex<Vec<Seen>>>,
    panics: String,
}

impl Keeper {
    fn named(&self, name: &str) -> Vec<Seen> {
        let seen = self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        seen.iter().filter(|one| one.name == name).cloned().collect()
    }

    fn keep(&self, one: Seen) {
        self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(one);
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Keeper {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(Open { began: Instant::now(), fields });
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            if let Some(open) = span.extensions_mut().get_mut::<Open>() {
                values.record(&mut open.fields);
            }
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let name = fields.0.get("message").cloned().unwrap_or_default();
        assert!(name != self.panics, "{name}");
        let parent = context.event_span(event).map(|span| span.name().to_owned());
        self.keep(Seen { name, parent, fields: fields.0, took: Duration::ZERO });
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let Some(open) = span.extensions_mut().remove::<Open>() else { return };
        let parent = span.parent().map(|span| span.name().to_owned());
        self.keep(Seen { name: span.name().to_owned(), parent, fields: open.fields.0, took: open.began.elapsed() });
    }
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < end, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Runs a test on a runtime whose threads have this subscriber.
fn on_server(panics: &str, test: impl AsyncFnOnce(String, Keeper) -> Outcome) -> Outcome {
    let Ok(url) = std::env::var("DATABASE_URL") else { return Ok(()) };
    let keeper = Keeper { seen: Arc::default(), panics: panics.to_owned() };
    let _guard = tracing::subscriber::set_default(Registry::default().with(keeper.clone()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(test(url, keeper))
}

async fn admin(url: &str) -> Result<tokio_postgres::Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

#[test]
fn spans_of_waits_and_holds() -> Outcome {
    on_server("", async |url, keeper| {
        let db = admin(&url).await?;
        let session =
            Options::new().ttl(Duration::from_secs(10)).connect(&format!("{url} application_name=spans")).await?;
        let work = info_span!("work");
        let hold = session.lock("spans").into_future().instrument(work.clone()).await?;
        let refused = session.try_lock("spans").into_future().instrument(work.clone()).await;
        assert_eq!(refused.err().map(|error| error.kind()), Some(Kind::NotAcquired));
        tokio::time::sleep(Duration::from_millis(100)).await;
        db.execute("SELECT force_release_lock('spans')", &[]).await?;
        until("the loss", || keeper.named("hold lock").len() == 1).await;
        let permit = session.lock("spans").permit(2).await?;
        let wrong = session.lock("spans").permit(3).await;
        assert_eq!(wrong.err().map(|error| error.kind()), Some(Kind::Invalid));
        let cut = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'spans'";
        db.execute(cut, &[]).await?;
        until("the suspension", || keeper.named("suspend session").len() == 1).await;
        permit.release().await?;
        until("the release", || keeper.named("hold lock").len() == 2).await;
        session.close().await?;

        let (acquires, holds) = (keeper.named("acquire lock"), keeper.named("hold lock"));
        let fields = |seen: &Seen| seen.fields.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>();
        let common = ["lock_election.mode=\"lock\"", "lock_election.names=[\"spans\"]"];
        let token = format!("lock_election.token={}", hold.token());
        assert_eq!(fields(&acquires[0]), [common[0], common[1], "lock_election.outcome=\"acquired\"", &token]);
        assert_eq!(fields(&acquires[1]), [common[0], common[1], "lock_election.outcome=\"not_acquired\""]);
        assert_eq!(acquires[3].fields["error.type"], "Invalid");
        assert_eq!(acquires[3].fields["otel.status_code"], "\"ERROR\"");
        let (lost, released) = (&holds[0], &holds[1]);
        assert_eq!(lost.fields["lock_election.outcome"], "\"lost\"");
        assert_eq!(lost.fields["error.type"], "Lost");
        assert_eq!(lost.fields["otel.status_code"], "\"ERROR\"");
        assert!(lost.fields["error.message"].contains("forced"), "{lost:?}");
        assert!(lost.took >= Duration::from_millis(100) && lost.took < Duration::from_secs(60), "{lost:?}");
        assert_eq!(released.fields["lock_election.outcome"], "\"released\"");
        assert!(!released.fields.contains_key("error.type"));
        for seen in [&acquires[0], &acquires[1], lost] {
            assert_eq!(seen.parent.as_deref(), Some("work"), "{seen:?}");
        }
        assert_eq!(keeper.named("the lock is lost")[0].parent.as_deref(), Some("hold lock"));
        assert_eq!(keeper.named("suspend session")[0].parent, None);
        assert!(keeper.named("the session is suspended")[0].fields.contains_key("error"));
        assert_eq!(keeper.named("the session is resumed").len(), 1);
        Ok(())
    })
}

#[test]
fn a_subscriber_that_panics_changes_nothing() -> Outcome {
    on_server("the session is suspended", async |url, keeper| {
        let db = admin(&url).await?;
        let session =
            Options::new().ttl(Duration::from_secs(10)).connect(&format!("{url} application_name=panics")).await?;
        let hold = session.lock("panics").await?;
        let cut = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'panics'";
        db.execute(cut, &[]).await?;
        until("the suspension", || keeper.named("suspend session").len() == 1).await;
        assert!(hold.is_valid() && session.state() == SessionState::Connected);
        db.execute(&format!("SELECT revoke_lease({})", session.lease()), &[]).await?;
        until("the end", || keeper.named("the session has ended").len() == 1).await;
        assert_eq!(hold.error().map(|error| error.kind()), Some(Kind::Lost));
        session.close().await?;
        Ok(())
    })
}
