//! The client's side of the conformance suite: see `clients/conformance/README.md` for its protocol.

use std::collections::HashMap;
use std::future::Future;
use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lock_election::{Acquire, Error, Hold, Kind, Leader, Options, Session, SessionState, Term};
use serde_json::{Map, Value, json};
use tokio::runtime::Handle;
use tokio_postgres::NoTls;
use tokio_util::sync::CancellationToken;

const FEATURES: [&str; 14] = [
    "shared", "permits", "several", "each", "election", "observe", "fence", "cancel", "hold_for", "own_ttl", "once",
    "abandon", "block", "threads",
];

enum Held {
    Lock(Hold),
    Term(Term),
}

impl Held {
    fn hold(&self) -> &Hold {
        match self {
            Held::Lock(hold) => hold,
            Held::Term(term) => term,
        }
    }
}

struct Kept {
    held: Arc<Held>,
    ended: CancellationToken,
    told: bool, // whether its loss was told
}

#[derive(Default)]
struct World {
    sessions: HashMap<String, Session>,
    holds: HashMap<String, Kept>,
    observers: HashMap<String, CancellationToken>,
    calls: HashMap<String, CancellationToken>,
}

#[derive(Clone, Default)]
struct Agent {
    world: Arc<Mutex<World>>,
    tasks: Arc<AtomicUsize>, // of the agent itself
}

/// A reply, or the status and message of an error.
type Answer = Result<Map<String, Value>, Failure>;

enum Failure {
    Library(Error),
    Open(Error),
    Other(&'static str, String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Library(error)
    }
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        Failure::Library(error.into())
    }
}

impl Kept {
    /// Reports its loss, once.
    fn tell(&mut self, name: &str) {
        if self.told || !self.ended.is_cancelled() {
            return;
        }
        if let Some(error) = self.held.hold().error().filter(|error| error.kind() == Kind::Lost) {
            self.told = true;
            write(&json!({"event": "lost", "hold": name, "why": error.to_string(), "at": stamp()}));
        }
    }
}

/// Milliseconds of `CLOCK_MONOTONIC`.
fn stamp() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    #[allow(clippy::cast_precision_loss)]
    let (seconds, nanoseconds) = (time.tv_sec as f64, time.tv_nsec as f64);
    seconds * 1e3 + nanoseconds / 1e6
}

fn write(line: &Value) {
    let mut out = std::io::stdout().lock();
    let written = writeln!(out, "{line}").and_then(|()| out.flush());
    if written.is_err() {
        std::process::exit(1);
    }
}

fn status(kind: Kind) -> &'static str {
    match kind {
        Kind::NotAcquired => "not_acquired",
        Kind::Lost => "lost",
        Kind::Released | Kind::Closed => "canceled",
        Kind::Deadlock => "deadlock",
        Kind::Limit => "limit",
        Kind::Denied => "denied",
        Kind::Invalid => "invalid",
        Kind::Unavailable => "unavailable",
        Kind::Unknown => "unknown",
        Kind::NotInstalled => "not_installed",
        _ => "failed",
    }
}

fn text<'a>(command: &'a Value, key: &str) -> &'a str {
    command[key].as_str().unwrap_or_default()
}

fn texts(command: &Value, key: &str) -> Vec<String> {
    let list = command[key].as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().map(|text| text.as_str().unwrap_or_default().to_owned()).collect()
}

/// A number of milliseconds; None if it is null or missing.
fn ms(command: &Value, key: &str) -> Option<Duration> {
    command[key].as_f64().map(|ms| Duration::from_secs_f64(ms / 1e3))
}

fn limited<T>(request: Acquire<T>, command: &Value) -> Acquire<T> {
    match ms(command, "wait") {
        Some(wait) => request.wait(wait),
        None => request,
    }
}

fn fields(value: Value) -> Answer {
    match value {
        Value::Object(fields) => Ok(fields),
        _ => Ok(Map::new()),
    }
}

fn leader(leader: Option<&Leader>) -> Value {
    match leader {
        Some(leader) => json!({"value": leader.candidate, "term": leader.term.to_string()}),
        None => json!({"value": null, "term": null}),
    }
}

fn no_such(what: &str, name: &str) -> Failure {
    Failure::Other("invalid", format!("there is no {what} {name:?}"))
}

impl Agent {
    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a task of the agent, which does not count as one of the library's.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let tasks = self.tasks.clone();
        tasks.fetch_add(1, Ordering::SeqCst);
        tokio::spawn(async move {
            task.await;
            tasks.fetch_sub(1, Ordering::SeqCst);
        });
    }

    fn session(&self, command: &Value) -> Result<Session, Failure> {
        let name = text(command, "session");
        self.world().sessions.get(name).cloned().ok_or_else(|| no_such("session", name))
    }

    fn hold(&self, command: &Value) -> Result<Arc<Held>, Failure> {
        let name = text(command, "hold");
        self.world().holds.get(name).map(|kept| kept.held.clone()).ok_or_else(|| no_such("hold", name))
    }

    /// Reports each lost hold once, before any other event.
    fn tell_lost(&self) {
        let mut world = self.world();
        for session in world.sessions.values() {
            _ = session.error(); // looks at the clock
        }
        for (name, kept) in &mut world.holds {
            kept.tell(name);
        }
    }

    fn keep(&self, name: &str, held: Held) {
        let (agent, name) = (self.clone(), name.to_owned());
        let kept = Kept { ended: held.hold().ended(), held: Arc::new(held), told: false };
        let ended = kept.ended.clone();
        self.world().holds.insert(name.clone(), kept);
        self.spawn(async move {
            ended.cancelled().await;
            if let Some(kept) = agent.world().holds.get_mut(&name) {
                kept.tell(&name);
            }
        });
    }

    /// Forgets a hold.
    async fn take(&self, command: &Value) -> Result<Held, Failure> {
        self.tell_lost();
        let name = text(command, "hold");
        let Kept { mut held, .. } = self.world().holds.remove(name).ok_or_else(|| no_such("hold", name))?;
        loop {
            match Arc::try_unwrap(held) {
                Ok(held) => return Ok(held),
                Err(shared) => held = shared, // another command uses it
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn open(&self, command: &Value) -> Answer {
        let mut options = Options::new().name(text(command, "name"));
        if let Some(ttl) = ms(command, "ttl") {
            options = options.ttl(ttl);
        }
        let session = options.connect(text(command, "dsn")).await.map_err(Failure::Open)?;
        let lease = session.lease().to_string();
        self.world().sessions.insert(text(command, "session").to_owned(), session);
        fields(json!({"lease": lease}))
    }

    async fn acquire(&self, command: &Value) -> Answer {
        let mut request = limited(self.session(command)?.lock(texts(command, "names")), command);
        if let Some(ttl) = ms(command, "ttl") {
            request = request.ttl(ttl);
        }
        match text(command, "mode") {
            "shared" => request = request.shared(),
            "permit" => {
                request = request.permit(command["permits"].as_u64().and_then(|n| n.try_into().ok()).unwrap_or(0))
            }
            _ => {}
        }
        let hold = request.await?;
        let token = hold.token().to_string();
        self.keep(text(command, "hold"), Held::Lock(hold));
        fields(json!({"token": token}))
    }

    async fn try_each(&self, command: &Value) -> Answer {
        let holds = self.session(command)?.try_lock_each(texts(command, "names")).await?;
        let tokens: Vec<_> = holds.iter().map(|hold| hold.as_ref().map(|hold| hold.token().to_string())).collect();
        for (name, hold) in texts(command, "holds").iter().zip(holds) {
            if let Some(hold) = hold {
                self.keep(name, Held::Lock(hold));
            }
        }
        fields(json!({"tokens": tokens}))
    }

    async fn once(&self, command: &Value) -> Answer {
        let job = tokio::time::sleep(ms(command, "ms").unwrap_or_default());
        let hold_for = ms(command, "hold_for").unwrap_or_default();
        let ran = self.session(command)?.once(texts(command, "names").concat(), hold_for, job).await?;
        fields(json!({"ran": ran.is_some()}))
    }

    async fn campaign(&self, command: &Value) -> Answer {
        let election = self.session(command)?.election(text(command, "election"));
        let term = limited(election.campaign(text(command, "value")), command).await?;
        let token = term.token().to_string();
        self.keep(text(command, "hold"), Held::Term(term));
        fields(json!({"token": token}))
    }

    /// Fences as an application does, on its own connection.
    async fn fence(&self, command: &Value) -> Answer {
        let held = self.hold(command)?;
        let (mut client, connection) = tokio_postgres::connect(text(command, "dsn"), NoTls).await?;
        self.spawn(async move { _ = connection.await });
        let transaction = client.transaction().await?;
        held.hold().fence(&transaction).await?;
        transaction.batch_execute(text(command, "sql")).await?;
        transaction.commit().await?;
        fields(json!({}))
    }

    async fn release(&self, command: &Value) -> Answer {
        match (self.take(command).await?, ms(command, "hold_for")) {
            (Held::Lock(hold), Some(hold_for)) => hold.release_hold_for(hold_for).await?,
            (Held::Lock(hold), None) => hold.release().await?,
            (Held::Term(term), _) => term.resign().await?,
        }
        fields(json!({}))
    }

    fn observe(&self, command: &Value) -> Answer {
        let mut observer = self.session(command)?.election(text(command, "election")).observe();
        let (name, stop) = (text(command, "observer").to_owned(), CancellationToken::new());
        self.world().observers.insert(name.clone(), stop.clone());
        self.spawn(async move {
            while let Some(Ok(change)) = stop.run_until_cancelled(observer.next()).await {
                let mut line = leader(change.as_ref());
                line["event"] = "leader".into();
                line["observer"] = name.clone().into();
                line["at"] = stamp().into();
                write(&line);
            }
        });
        fields(json!({}))
    }

    async fn close(&self, command: &Value) -> Answer {
        let session = self.session(command)?;
        self.tell_lost();
        match ms(command, "limit") {
            Some(limit) => session.close_within(limit).await?,
            None => session.close().await?,
        }
        fields(json!({}))
    }

    /// Counts the library's live tasks, and the sockets of this process. Ended tasks take a moment to disappear.
    async fn count(&self) -> Answer {
        let mut threads = 0;
        for _ in 0..50 {
            threads = Handle::current().metrics().num_alive_tasks().saturating_sub(self.tasks.load(Ordering::SeqCst));
            if threads == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
        let targets = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        let connections = targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count();
        fields(json!({"threads": threads, "connections": connections}))
    }

    async fn carry_out(&self, command: &Value) -> Answer {
        match text(command, "do") {
            "open" => self.open(command).await,
            "acquire" => self.acquire(command).await,
            "try_each" => self.try_each(command).await,
            "once" => self.once(command).await,
            "campaign" => self.campaign(command).await,
            "cancel" => {
                if let Some(cancel) = self.world().calls.get(&command["of"].to_string()) {
                    cancel.cancel();
                }
                fields(json!({}))
            }
            "valid" => {
                let held = self.hold(command)?;
                let left = held.hold().time_left().as_secs_f64() * 1e3;
                fields(json!({"valid": held.hold().is_valid(), "deadline": left}))
            }
            "fence" => self.fence(command).await,
            "proclaim" => {
                if let Held::Term(term) = &*self.hold(command)? {
                    term.proclaim(text(command, "value")).await?;
                }
                fields(json!({}))
            }
            "resign" | "release" => self.release(command).await,
            "abandon" => {
                drop(self.take(command).await?);
                fields(json!({}))
            }
            "leader" => {
                let found = self.session(command)?.election(text(command, "election")).leader().await?;
                fields(leader(found.as_ref()))
            }
            "observe" => self.observe(command),
            "unobserve" => {
                if let Some(stop) = self.world().observers.remove(text(command, "observer")) {
                    stop.cancel();
                }
                fields(json!({}))
            }
            "state" => fields(json!({"state": match self.session(command)?.state() {
                SessionState::Connected => "connected",
                SessionState::Suspended => "suspended",
                SessionState::Ended => "ended",
            }})),
            "close" => self.close(command).await,
            "threads" => self.count().await,
            _ => Err(Failure::Other("unsupported", "unsupported".to_owned())),
        }
    }

    async fn serve(self, command: Value, cancel: CancellationToken) {
        let sent = stamp();
        let answer = cancel.run_until_cancelled(self.carry_out(&command)).await;
        let at = stamp();
        let answer = answer.unwrap_or_else(|| Err(Failure::Other("canceled", "canceled".to_owned())));
        let mut line = Value::Object(answer.unwrap_or_else(|failure| {
            let mut line = Map::new();
            let error = match &failure {
                Failure::Library(error) | Failure::Open(error) => error,
                Failure::Other(status, message) => {
                    line.insert("status".to_owned(), (*status).into());
                    line.insert("message".to_owned(), message.as_str().into());
                    return line;
                }
            };
            line.insert("status".to_owned(), status(error.kind()).into());
            line.insert("message".to_owned(), error.to_string().into());
            if let Some(code) = error.sqlstate() {
                line.insert("sqlstate".to_owned(), code.into());
            }
            if let Failure::Open(error) = &failure {
                line.insert("shown".to_owned(), format!("{error}\n{error:?}\n{error:#?}").into());
            }
            line
        }));
        if line["status"].is_null() {
            line["status"] = "ok".into();
        }
        line["id"] = command["id"].clone();
        line["sent"] = sent.into();
        line["at"] = at.into();
        self.tell_lost();
        self.world().calls.remove(&command["id"].to_string());
        write(&line);
    }

    /// Computes in the thread that reads the commands.
    fn block(&self, command: &Value) {
        let sent = stamp();
        let end = Instant::now() + ms(command, "ms").unwrap_or_default();
        while Instant::now() < end {
            std::hint::spin_loop();
        }
        self.tell_lost();
        write(&json!({"id": command["id"], "status": "ok", "sent": sent, "at": stamp()}));
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if std::env::args().nth(1).as_deref() == Some("--capabilities") {
        write(&json!({"client": "rust", "version": "1.0.0", "modes": ["tokio"], "features": FEATURES}));
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let _entered = runtime.enter();
    let agent = Agent::default();
    for line in std::io::stdin().lock().lines() {
        let command: Value = serde_json::from_str(&line?)?;
        if text(&command, "do") == "block" {
            agent.block(&command);
            continue;
        }
        let cancel = CancellationToken::new();
        agent.world().calls.insert(command["id"].to_string(), cancel.clone());
        agent.spawn(agent.clone().serve(command, cancel));
    }
    let sessions: Vec<Session> = agent.world().sessions.values().cloned().collect();
    runtime.block_on(async {
        let closing: Vec<_> = sessions
            .into_iter()
            .map(|session| tokio::spawn(async move { session.close_within(Duration::from_secs(1)).await }))
            .collect();
        for close in closing {
            _ = close.await;
        }
    });
    Ok(())
}
