use tokio_postgres::{Client, IsolationLevel};

use crate::{Error, Kind};

/// The SQL that [`install`] runs, for tools such as migrations, which must run it in one transaction. It is the file
/// `sql/portable/lock_election.sql`.
pub const INSTALL_SCRIPT: &str = include_str!("lock_election.sql");

/// The options of [`install`]. The default works if the role may create objects in the first schema of `search_path`.
#[derive(Clone, Debug, Default)]
pub struct InstallOptions {
    /// The schema for the functions, created if missing. Empty means the first schema of `search_path`. An edition that
    /// is already installed stays in its schema.
    pub schema: String,
    /// The role that may use the schema. Empty means that all roles may use a schema that is created.
    pub grant: String,
}

/// Installs the portable edition of `lock_election`, which has no C code, in the client's database, or upgrades an
/// older version, in one transaction. If this version is already installed, it does nothing and needs no privilege.
/// Otherwise the role needs CREATE on the database. It becomes the owner of all locks, so it should not be the
/// application's role. The client must not be in a transaction.
///
/// # Errors
/// `Denied` if the role lacks CREATE or another role has installed the edition; `Unknown` if there is no reply, so that
/// the call can be repeated; `Failed` if, for example, a newer version or the extension is installed.
pub async fn install(client: &mut Client, options: &InstallOptions) -> Result<(), Error> {
    // The schema's comment names the installed version, which is current if the script contains the same comment.
    let sql = "SELECT coalesce(pg_catalog.obj_description(n.oid, 'pg_namespace'), '') FROM pg_catalog.pg_namespace n \
        WHERE n.nspname OPERATOR(pg_catalog.=) '_lock_election'";
    if let Some(row) = client.query_typed_opt(sql, &[]).await? {
        let comment: String = row.try_get(0)?;
        if !comment.is_empty() && INSTALL_SCRIPT.contains(&comment) {
            return Ok(());
        }
    }
    let run = async {
        let transaction = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted).start().await?;
        let sql = "SELECT pg_catalog.set_config('_lock_election.schema', $1, true), \
            pg_catalog.set_config('_lock_election.grant', $2, true)";
        transaction.query(sql, &[&options.schema, &options.grant]).await?;
        transaction.batch_execute(INSTALL_SCRIPT).await?;
        transaction.commit().await
    };
    run.await.map_err(|error| match Error::from(error) {
        // The commit may have been carried out.
        error if error.sqlstate().is_none() => error.of_kind(Kind::Unknown),
        error => error,
    })
}
