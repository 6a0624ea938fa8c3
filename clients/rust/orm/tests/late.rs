//! What the programs write in time is written, what they write late is refused. They run on the server of
//! `DATABASE_URL`, which `PGHOST` and the like name, too; without it this test does nothing.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{ChildStdout, Command, Stdio};

use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection, PgConnection};

type Outcome = Result<(), Box<dyn std::error::Error>>;

#[tokio::test]
async fn late_writes_are_refused() -> Outcome {
    let Ok(url) = std::env::var("DATABASE_URL") else { return Ok(()) };
    let mut db = PgConnection::connect_with(&PgConnectOptions::new()).await?;
    for program in [env!("CARGO_BIN_EXE_sqlx"), env!("CARGO_BIN_EXE_diesel")] {
        late(&mut db, program, &url).await?;
    }
    Ok(())
}

async fn late(db: &mut PgConnection, program: &str, url: &str) -> Outcome {
    // All that a driver could take for a parameter.
    let name = format!(r"it's :late? $1 @p %s {{0}} \ é {}", std::process::id());
    let quoted = name.replace('\'', "''");
    // The trigger refuses an update whose transaction has no fence, such as one on another connection than the fence.
    let setup = format!(
        "DROP TABLE IF EXISTS balance; CREATE TABLE balance (id int PRIMARY KEY, amount int);
        INSERT INTO balance VALUES (1, 0);
        CREATE TRIGGER guard BEFORE UPDATE ON balance EXECUTE FUNCTION fence_guard('{quoted}')"
    );
    sqlx::raw_sql(&setup).execute(&mut *db).await?;
    let mut child = Command::new(program).args([url, &name]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut input = child.stdin.take().ok_or("no input")?;
    let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
    assert_eq!(next(&mut lines)?, "ready");
    writeln!(input, "5")?;
    assert_eq!(next(&mut lines)?, "added");
    assert_eq!(amount(db).await?, 5);
    sqlx::query("SELECT force_release_lock($1)").bind(&name).execute(&mut *db).await?;
    writeln!(input, "7")?;
    let refused = next(&mut lines)?;
    assert!(refused.contains("is not held by token"), "{refused}"); // the server's message
    assert_eq!(amount(db).await?, 5);
    drop(input);
    assert!(child.wait()?.success());
    Ok(())
}

fn next(lines: &mut Lines<BufReader<ChildStdout>>) -> Result<String, Box<dyn std::error::Error>> {
    Ok(lines.next().ok_or("the program has ended")??)
}

async fn amount(db: &mut PgConnection) -> Result<i32, sqlx::Error> {
    sqlx::query_scalar("SELECT amount FROM balance").fetch_one(db).await
}
