//! Adds each number that it reads to a balance, with diesel. It cannot commit a write after its lock is lost.

use diesel::prelude::*;
use diesel_async::scoped_futures::ScopedFutureExt;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use lock_election::{Hold, Session};
use tokio::io::{AsyncBufReadExt, BufReader, stdin};

type Error = Box<dyn std::error::Error + Send + Sync>;

diesel::table! {
    balance (id) {
        id -> Integer,
        amount -> Integer,
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let [url, name] = [1, 2].map(|i| std::env::args().nth(i).unwrap_or_default());
    let (session, mut connection) = (Session::connect(&url).await?, AsyncPgConnection::establish(&url).await?);
    let hold = session.lock(&name).await?;
    println!("ready");
    let mut lines = BufReader::new(stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        match add(&mut connection, &hold, line.parse()?).await {
            Ok(()) => println!("added"),
            Err(error) => println!("{error}"),
        }
    }
    session.close().await?;
    Ok(())
}

async fn add(connection: &mut AsyncPgConnection, hold: &Hold, more: i32) -> Result<(), Error> {
    connection
        .transaction(|connection| {
            async move {
                diesel::sql_query(hold.fence_sql()?).execute(connection).await?;
                diesel::update(balance::table)
                    .set(balance::amount.eq(balance::amount + more))
                    .execute(connection)
                    .await?;
                Ok(())
            }
            .scope_boxed()
        })
        .await
}
