//! Adds each number that it reads to a balance, with sqlx. It cannot commit a write after its lock is lost.

use lock_election::{Hold, Session};
use sqlx::PgPool;
use sqlx::postgres::PgConnectOptions;
use tokio::io::{AsyncBufReadExt, BufReader, stdin};

type Error = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let [url, name] = [1, 2].map(|i| std::env::args().nth(i).unwrap_or_default());
    let session = Session::connect(&url).await?;
    let pool = PgPool::connect_with(PgConnectOptions::new()).await?; // uses PGHOST, ...
    let hold = session.lock(&name).await?;
    println!("ready");
    let mut lines = BufReader::new(stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        match add(&pool, &hold, line.parse()?).await {
            Ok(()) => println!("added"),
            Err(error) => println!("{error}"),
        }
    }
    session.close().await?;
    Ok(())
}

async fn add(pool: &PgPool, hold: &Hold, more: i32) -> Result<(), Error> {
    let mut transaction = pool.begin().await?; // rolled back when it is dropped
    sqlx::raw_sql(&hold.fence_sql()?).execute(&mut *transaction).await?;
    sqlx::query("UPDATE balance SET amount = amount + $1").bind(more).execute(&mut *transaction).await?;
    Ok(transaction.commit().await?)
}
