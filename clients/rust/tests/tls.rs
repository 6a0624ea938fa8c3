//! Sessions over TLS, on the server of `TLS_URL`; without it this test does nothing. The certificates of
//! `SSL_CERT_FILE` are trusted. With `TLS_UNTRUSTED`, the server's certificate is not among them.
#![cfg(any(feature = "rustls", feature = "native-tls"))]

use lock_election::{Kind, Options};
use tokio_postgres::NoTls;

#[test]
fn a_session_uses_tls() -> Result<(), Box<dyn std::error::Error>> {
    let Ok(url) = std::env::var("TLS_URL") else { return Ok(()) };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let opened = Options::new().connect(&format!("{url} sslmode=require")).await;
        if std::env::var_os("TLS_UNTRUSTED").is_some() {
            assert_eq!(opened.err().map(|error| error.kind()), Some(Kind::Unavailable), "an untrusted certificate");
            return Ok(());
        }
        let session = opened?;
        let hold = session.lock("tls").await?;
        let (client, connection) = tokio_postgres::connect(&format!("{url} sslmode=disable"), NoTls).await?;
        tokio::spawn(connection);
        let row = client.query_one("SELECT count(*) FROM pg_stat_ssl WHERE ssl", &[]).await?;
        assert_eq!(row.get::<_, i64>(0), 1, "sessions with TLS");
        hold.release().await?;
        session.close().await?;
        Ok(())
    })
}
