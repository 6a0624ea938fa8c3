package lockelection

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// InstallScript is the SQL script that [Install] runs, sql/portable/lock_election.sql. Migration tools must run it in
// one transaction.
//
//go:embed lock_election.sql
var InstallScript string

// InstallOptions are the options of [Install]. The zero value works if the role may create objects in the first schema
// of search_path.
type InstallOptions struct {
	// Schema is the schema for the functions, created if missing. Empty means the first schema of search_path. An
	// edition that is already installed stays in its schema.
	Schema string
	// Grant is the role that may use the schema. Empty means that all roles may use a schema that Install creates.
	Grant string
}

// Install installs the portable edition of lock_election, which has no C code, in the connection's database, or
// upgrades an older version, in one transaction. If this version is already installed, Install does nothing and needs
// no privilege. Otherwise the role needs CREATE on the database. That role becomes the owner of all locks, so it
// should not be the application's role. With a pool:
//
//	pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error { return lockelection.Install(ctx, c.Conn(), options) })
//
// It returns ErrDenied if the role lacks CREATE or another role has installed the edition, ErrInvalid if a transaction
// is open or there is no schema, and ErrUnavailable on a standby or in a read-only session. It returns ErrUnknown if
// the outcome is not known; then repeat the call. It returns a server error if a newer version or the extension is
// installed, or the server cannot run the edition.
func Install(ctx context.Context, conn *pgx.Conn, options InstallOptions) error {
	if err := checkContext(ctx); err != nil {
		return err
	} else if conn == nil {
		return invalid("the connection is nil")
	} else if conn.IsClosed() {
		return fmt.Errorf("%w: the connection is closed", ErrUnavailable)
	} else if conn.PgConn().TxStatus() != 'I' {
		return invalid("the connection has an open transaction: the installation requires its own")
	}
	// The schema's comment names the installed version, which is current if the script contains the same comment.
	var comment string
	err := conn.QueryRow(ctx, "SELECT coalesce(pg_catalog.obj_description(n.oid, 'pg_namespace'), '')"+
		" FROM pg_catalog.pg_namespace n WHERE n.nspname OPERATOR(pg_catalog.=) '_lock_election'").Scan(&comment)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return explain(err)
	} else if comment != "" && strings.Contains(InstallScript, comment) {
		return nil
	}
	return installed(pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "SELECT pg_catalog.set_config('_lock_election.schema', $1, true),"+
			" pg_catalog.set_config('_lock_election.grant', $2, true)", options.Schema, options.Grant)
		if err == nil {
			_, err = tx.Conn().PgConn().Exec(ctx, InstallScript).ReadAll()
		}
		return err
	}))
}

// installed converts the error of an installation. Without a reply, the COMMIT may have been carried out.
func installed(err error) error {
	if err == nil {
		return nil
	} else if sqlState(err) == "" {
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	} else if explained := explain(err); explained != err {
		return explained
	}
	return fmt.Errorf("%w%s", err, details(err))
}
