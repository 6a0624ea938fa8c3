//! What an application sees of the crate, on the server of `DATABASE_URL`; without it these tests do nothing. The
//! conformance suite shows the rest.

use std::future::Future;
use std::time::Duration;

use lock_election::{Hold, InstallOptions, Kind, Options, Session, SessionState, install};
use tokio::time::timeout;
use tokio_postgres::{Client, Config, NoTls};

type Outcome = Result<(), Box<dyn std::error::Error>>;

const TTL: Duration = Duration::from_secs(3);
const SOON: Duration = Duration::from_secs(20);

/// Runs a test on a runtime of its own.
fn on_server(test: impl AsyncFnOnce(String) -> Outcome) -> Outcome {
    let Ok(url) = std::env::var("DATABASE_URL") else { return Ok(()) };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async { timeout(3 * SOON, test(url)).await? })
}

async fn open(url: &str) -> Result<Session, lock_election::Error> {
    Options::new().ttl(TTL).name("test").connect(url).await
}

async fn connect(url: &str) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

fn kind<T>(result: Result<T, lock_election::Error>) -> Option<Kind> {
    result.err().map(|error| error.kind())
}

/// Waits until another session can acquire a lock.
async fn is_free(session: &Session, name: &str) -> Result<Hold, lock_election::Error> {
    session.lock(name).wait(SOON).await
}

/// Asserts that a call waits.
async fn waits<T>(call: impl Future<Output = T>) {
    assert!(timeout(Duration::from_millis(200), call).await.is_err(), "it does not wait");
}

#[test]
fn a_dropped_hold_is_released() -> Outcome {
    on_server(async |url| {
        let (a, b) = (open(&url).await?, open(&url).await?);
        let hold = a.lock("dropped").await?;
        let ended = hold.ended();
        assert_eq!(kind(b.try_lock("dropped").await), Some(Kind::NotAcquired));
        drop(hold);
        assert!(ended.is_cancelled());
        is_free(&b, "dropped").await?.release().await?;
        a.close().await?;
        assert_eq!(a.state(), SessionState::Ended);
        assert_eq!(kind(a.lock("dropped").await), Some(Kind::Closed));
        b.close().await?;
        Ok(())
    })
}

#[test]
fn a_job_that_was_dropped_keeps_its_name_closed() -> Outcome {
    on_server(async |url| {
        let (a, b) = (open(&url).await?, open(&url).await?);
        let closed = Duration::from_secs(2); // less than the TTL
        let endless = a.once("job", closed, std::future::pending::<()>());
        assert!(timeout(Duration::from_millis(300), endless).await.is_err());
        assert_eq!(b.once("job", closed, async { 7 }).await?, None);
        tokio::time::sleep(Duration::from_millis(1000)).await;
        assert_eq!(b.once("job", closed, async { 7 }).await?, None);
        is_free(&b, "job").await?.release().await?;
        assert_eq!(b.once("job", Duration::ZERO, async { 7 }).await?, Some(7));
        assert_eq!(kind(b.once("", closed, async { 7 }).await), Some(Kind::Invalid));
        a.close().await?;
        b.close().await?;
        Ok(())
    })
}

#[test]
fn a_dropped_request_leaves_no_place() -> Outcome {
    on_server(async |url| {
        let (a, b, c) = (open(&url).await?, open(&url).await?, open(&url).await?);
        let hold = a.lock("places").await?;
        waits(b.lock("places").into_future()).await;
        let waiting = tokio::spawn(c.lock("places").into_future());
        tokio::time::sleep(Duration::from_millis(200)).await;
        hold.release().await?;
        timeout(SOON, waiting).await???.release().await?;
        for session in [a, b, c] {
            session.close().await?;
        }
        Ok(())
    })
}

/// A future that was begun and is polled no more must not hold up the session.
#[test]
fn a_request_that_is_not_polled_holds_up_nothing() -> Outcome {
    on_server(async |url| {
        let session = open(&url).await?;
        let mut idle = std::pin::pin!(session.lock("idle").into_future());
        std::future::poll_fn(|context| {
            _ = idle.as_mut().poll(context);
            std::task::Poll::Ready(())
        })
        .await;
        let hold = session.lock("busy").await?;
        tokio::time::sleep(TTL * 3 / 2).await;
        assert!(hold.is_valid());
        idle.await?.release().await?;
        session.close().await?;
        Ok(())
    })
}

#[test]
fn kinds_of_locks() -> Outcome {
    on_server(async |url| {
        let (a, b) = (open(&url).await?, open(&url).await?);
        let readers = (a.lock("shared").shared().await?, b.lock("shared").shared().await?);
        assert_eq!(kind(b.try_lock("shared").await), Some(Kind::NotAcquired));
        let permits = (a.lock("permit").permit(2).await?, b.try_lock("permit").permit(2).await?);
        assert_eq!(kind(b.try_lock("permit").permit(2).await), Some(Kind::NotAcquired));
        let both = a.lock(["one", "two"]).await?;
        assert_eq!(both.names(), ["one", "two"]);
        let each = b.try_lock_each(["one", "three"]).await?;
        assert_eq!(each.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true]);
        assert_eq!(kind(b.lock("one").wait(Duration::from_millis(100)).await), Some(Kind::NotAcquired));
        let short = b.lock("short").ttl(Duration::from_secs(1)).await?;
        tokio::time::sleep(Duration::from_millis(1500)).await;
        assert!(short.is_valid() && short.time_left() <= Duration::from_secs(1));
        both.release_hold_for(Duration::from_millis(1)).await?;
        drop((readers, permits, each, short));
        a.close().await?;
        b.close().await?;
        Ok(())
    })
}

#[test]
fn arguments() -> Outcome {
    on_server(async |url| {
        let session = open(&url).await?;
        for request in [
            session.lock(""),
            session.lock("a\0b"),
            session.lock(["a", "a"]),
            session.lock(Vec::<String>::new()),
            session.lock("x".repeat(2000)),
            session.lock("a").shared().permit(1),
            session.lock(["a", "b"]).permit(1),
            session.lock("a").permit(0),
            session.lock("a").ttl(Duration::from_millis(99)),
        ] {
            assert_eq!(kind(request.await), Some(Kind::Invalid));
        }
        assert_eq!(kind(session.election("").campaign("x").await), Some(Kind::Invalid));
        assert_eq!(kind(session.election("e").campaign("").await), Some(Kind::Invalid));
        let hold = session.lock("a").await?;
        assert_eq!(kind(hold.release_hold_for(Duration::from_secs(25 * 24 * 3600)).await), Some(Kind::Invalid));
        is_free(&session, "a").await?.release().await?;
        session.close().await?;
        Ok(())
    })
}

#[test]
fn work_is_dropped_at_the_loss() -> Outcome {
    on_server(async |url| {
        let (session, client) = (open(&url).await?, connect(&url).await?);
        let hold = session.lock("work").await?;
        assert_eq!(hold.run(async { 7 }).await?, 7);
        client.execute("SELECT force_release_lock('work')", &[]).await?;
        let error = timeout(SOON, hold.run(std::future::pending::<()>())).await?.err();
        assert_eq!(error.as_ref().map(lock_election::Error::kind), Some(Kind::Lost));
        assert_eq!(hold.error().map(|error| error.to_string()), error.map(|error| error.to_string()));
        assert!(!hold.is_valid() && hold.ended().is_cancelled());
        assert_eq!(kind(hold.fence_sql()), Some(Kind::Lost));
        assert_eq!(kind(hold.release().await), Some(Kind::Lost));
        session.close().await?;
        Ok(())
    })
}

#[test]
fn fences() -> Outcome {
    on_server(async |url| {
        let (session, mut client) = (open(&url).await?, connect(&url).await?);
        let hold = session.lock(["fence 1", "fence 2"]).await?;
        let transaction = client.transaction().await?;
        hold.fence(&transaction).await?;
        transaction.commit().await?;
        let term = session.election("fence").campaign("x").await?;
        let transaction = client.transaction().await?;
        term.fence(&transaction).await?;
        transaction.batch_execute("SELECT force_release_lock('fence 2')").await?;
        transaction.commit().await?;
        let transaction = client.transaction().await?;
        assert_eq!(kind(hold.fence(&transaction).await), Some(Kind::Lost));
        transaction.rollback().await?;
        session.close().await?;
        Ok(())
    })
}

/// For names that an ORM could misread, several of them, and a term.
#[test]
fn fences_as_sql() -> Outcome {
    on_server(async |url| {
        let (session, mut client) = (open(&url).await?, connect(&url).await?);
        let odd = r"it's ?, :x, $1, %s, \, é";
        for hold in [session.lock(odd).await?, session.lock(["plain", &format!("{odd} 2")]).await?] {
            late(&mut client, &hold, "SELECT force_release_lock($1)").await?;
        }
        let term = session.election(odd).campaign("me").await?;
        late(&mut client, &term, "SELECT force_resign($1)").await?;
        session.close().await?;
        Ok(())
    })
}

/// A fence by SQL: in time, late, and after the session knows of the loss.
async fn late(client: &mut Client, hold: &Hold, force: &str) -> Outcome {
    let sql = hold.fence_sql()?;
    assert!(!sql.contains(['?', ':', '$', '%', '\\']), "{sql}");
    let transaction = client.transaction().await?;
    let fenced: i64 = transaction.query_one(&sql, &[]).await?.get(0);
    assert_eq!(fenced, i64::try_from(hold.names().len())?);
    transaction.commit().await?;
    client.execute(force, &[&hold.names().last()]).await?;
    let transaction = client.transaction().await?;
    let error = transaction.batch_execute(&sql).await.err();
    assert_eq!(error.and_then(|error| error.code().map(|code| code.code().to_owned())).as_deref(), Some("LE001"));
    transaction.rollback().await?;
    hold.ended().cancelled().await;
    assert_eq!(kind(hold.fence_sql()), Some(Kind::Lost));
    Ok(())
}

#[test]
fn leaders_and_observers() -> Outcome {
    on_server(async |url| {
        let (a, b) = (open(&url).await?, open(&url).await?);
        let (ours, theirs) = (a.election("chief"), b.election("chief"));
        let mut changes = theirs.observe();
        assert_eq!(timeout(SOON, changes.next()).await??, None);
        let term = ours.campaign("one").await?;
        assert_eq!(kind(theirs.try_campaign("two").await), Some(Kind::NotAcquired));
        term.proclaim("uno").await?;
        for expected in ["one", "uno"] {
            let leader = timeout(SOON, changes.next()).await??.map(|leader| (leader.candidate, leader.term));
            assert_eq!(leader, Some((expected.to_owned(), term.token())));
        }
        let (led, mut terms) = tokio::sync::mpsc::unbounded_channel();
        let leads = async {
            theirs
                .lead("two", async |term| {
                    _ = led.send(term.token());
                })
                .await
        };
        let check = async {
            term.resign().await?;
            let (first, second) = (terms.recv().await, terms.recv().await);
            assert!(first < second, "each term is higher");
            Ok::<(), lock_election::Error>(())
        };
        tokio::select! {
            error = leads => return Err(error.into()),
            checked = timeout(SOON, check) => checked??,
        }
        // the term was resigned when the future was dropped
        ours.campaign("three").wait(SOON).await?.resign().await?;
        assert_eq!(ours.leader().await?, None);
        a.close().await?;
        b.close().await?;
        Ok(())
    })
}

#[test]
fn the_last_handle_ends_the_session() -> Outcome {
    on_server(async |url| {
        let (a, b) = (open(&url).await?, open(&url).await?);
        let hold = a.lock("last").await?;
        let lease = a.lease();
        drop(a);
        tokio::time::sleep(TTL / 2).await;
        assert!(hold.is_valid(), "a hold keeps its session");
        drop(hold);
        let client = connect(&url).await?;
        while client
            .query_one("SELECT count(*) FROM lock_election.leases WHERE lease = $1", &[&lease])
            .await?
            .get::<_, i64>(0)
            > 0
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        is_free(&b, "last").await?.release().await?;
        b.close().await?;
        Ok(())
    })
}

/// The session's task ends with its runtime, and says so.
#[test]
fn a_runtime_that_is_shut_down_ends_the_session() -> Outcome {
    on_server(async |url| {
        let session = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(open(&url))
        });
        let session = session.join().expect("no panic")?;
        assert_eq!(session.state(), SessionState::Ended);
        assert_eq!(kind(session.lock("other").await), Some(Kind::Closed));
        Ok(())
    })
}

#[test]
fn a_lost_session_is_opened_again() -> Outcome {
    on_server(async |url| {
        let (session, client) = (open(&url).await?, connect(&url).await?);
        client.execute("SELECT revoke_lease($1)", &[&session.lease()]).await?;
        timeout(SOON, session.ended().cancelled()).await?;
        assert_eq!(session.error().map(|error| error.kind()), Some(Kind::Lost));
        let session = session.reopen().await?;
        assert_eq!(session.state(), SessionState::Connected);
        session.close().await?;
        Ok(())
    })
}

#[test]
fn the_portable_edition_is_installed() -> Outcome {
    on_server(async |url| {
        let client = connect(&url).await?;
        client.batch_execute("DROP DATABASE IF EXISTS rust_portable").await?;
        client.batch_execute("CREATE DATABASE rust_portable").await?;
        let mut config: Config = url.parse()?;
        config.dbname("rust_portable");
        let (mut other, connection) = config.connect(NoTls).await?;
        let served = tokio::spawn(connection);
        assert_eq!(kind(Options::new().open(&config).await), Some(Kind::NotInstalled));
        let options = InstallOptions { schema: "locks".to_owned(), ..InstallOptions::default() };
        install(&mut other, &options).await?;
        install(&mut other, &options).await?;
        let session = Options::new().ttl(TTL).open(&config).await?;
        session.lock("portable").await?.release().await?;
        session.close().await?;
        drop(other);
        served.await??;
        client.batch_execute("DROP DATABASE rust_portable WITH (FORCE)").await?;
        Ok(())
    })
}

#[test]
fn strings_that_are_wrong_are_not_shown() -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        for (url, what) in [
            ("postgres://u:secret@h:port/d", "cannot parse the connection string, the value of port "),
            ("host=h secret", "cannot parse the connection string ("),
            ("host=h pasword=secret", "cannot parse the connection string ("),
            ("host=h sslmode=verify-secret", "cannot parse the connection string, the value of sslmode "),
            ("postgres://u:a@secret@h/d", "the connection string is wrong: a host has an @"),
            ("dbname=secret", "the connection string has no host"),
            ("host=a,b,c port=1,2 dbname=secret", "the connection string has other numbers of hosts"),
        ] {
            let error = Session::connect(url).await.expect_err("it is wrong");
            assert_eq!(error.kind(), Kind::Invalid, "{url}");
            assert!(error.to_string().starts_with(what), "{url}: {error}");
            assert!(!format!("{error} {error:?}").contains("secret"), "{url}: {error:?}");
        }
        Ok(())
    })
}
