package lockelection

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// InstallScript is the SQL that [Install] runs, for tools that run it themselves, such as migrations: in one
// transaction. It is sql/portable/lock_election.sql of the sources.
//
//go:embed lock_election.sql
var InstallScript string

// InstallOptions of [Install]; the zero value will do where the role may create in the first schema of search_path.
type InstallOptions struct {
	// Schema for the functions, made if it is missing; else the first one of search_path. An edition that is installed
	// stays in its schema.
	Schema string
	// Grant is the role that may use the schema; everybody may use one that is made otherwise.
	Grant string
}

// Install installs the portable edition of lock_election, the one without C, in the connection's database, or upgrades
// an older version, in one transaction. It does nothing where this version is there already, whoever calls. The role
// needs CREATE on the database, and owns all locks afterwards: it should not be the application's. With a pool:
//
//	pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error { return lockelection.Install(ctx, c.Conn(), options) })
//
// ErrDenied: no CREATE, or another role has installed. ErrInvalid: a transaction is open, or there is no schema.
// ErrUnavailable: a standby, or a read-only session. ErrUnknown: it may be installed, call again. Others are the
// server's: a newer version is there, or the extension, or the server cannot run it.
func Install(ctx context.Context, conn *pgx.Conn, options InstallOptions) error {
	if err := checkContext(ctx); err != nil {
		return err
	} else if conn == nil {
		return invalid("the connection is nil")
	} else if conn.IsClosed() {
		return fmt.Errorf("%w: the connection is closed", ErrUnavailable)
	} else if conn.PgConn().TxStatus() != 'I' {
		return invalid("the connection has an open transaction: the installation is one of its own")
	}
	// Each version has a comment of its own, which stands in the script as well.
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

// installed is the error of an installation: without an answer of the server its COMMIT may have come through.
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
