package lockelection

import (
	"errors"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A connection string may contain a password, and in a wrong string, any part may be the password. So no error
// contains a part of the string, whether pgx cannot parse it, or the server or the resolver rejects a part as a name.

// kindsOfMistakes are words in pgx's errors that are safe to show.
var kindsOfMistakes = []string{"invalid port", "sslmode", "sslcertmode", "target_session_attrs", "connect_timeout", "TLS",
	"service", "protocol_version", "channel_binding", "require_auth", "port numbers", "keyword/value", "URL"}

func parse(connString string) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(connString)
	if err == nil {
		return config, nil
	}
	text := err.Error()
	if at := strings.LastIndex(text, "`: "); at >= 0 {
		text = text[at:] // skip the quoted string, which may contain the same words
	}
	for _, kind := range kindsOfMistakes {
		if strings.Contains(text, kind) {
			return nil, invalid("cannot parse the connection string: %s (it is not shown, for it may have a password)", kind)
		}
	}
	return nil, invalid("cannot parse the connection string (it is not shown, for it may have a password)")
}

var (
	word = regexp.MustCompile(`^[A-Za-z_][\w.]*$`)
	// stray matches a host, user or database that seems to contain a part of a password
	stray = regexp.MustCompile(`(?i)passw(or)?d\s*=|@.*/|[/?#].*@`)
)

// checkConfig rejects a configuration if pgx has split the connection string in a wrong place, because the password
// contains an @, a / or a space.
func checkConfig(c *pgconn.Config) error {
	hosts := []string{c.Host}
	for _, other := range c.Fallbacks {
		hosts = append(hosts, other.Host)
	}
	parts := []string{c.User, c.Database}
	for _, host := range hosts {
		if network, _ := pgconn.NetworkAddress(host, 1); network == "unix" {
			continue
		} else if strings.Contains(host, "@") {
			return misread("a host has an @")
		}
		parts = append(parts, host)
	}
	for _, part := range parts {
		if stray.MatchString(part) {
			return misread("what seems to be a password is in the host, the user or the database")
		}
	}
	for name := range c.RuntimeParams {
		if !word.MatchString(name) {
			return misread("the name of a parameter is no word")
		}
	}
	return nil
}

func misread(what string) error {
	return invalid("the connection string is wrong: %s. In a URL write %%40 for @ and %%2F for / in a password; of keywords and"+
		" values quote the value", what)
}

// withoutConfig removes from an error the configuration that pgconn adds, which contains the password, and the name of
// a parameter that the server does not know, which may be a part of a password.
func withoutConfig(err error) error {
	var failed *pgconn.ConnectError
	if errors.As(err, &failed) {
		err = failed.Unwrap()
	}
	if sqlState(err) == "42704" {
		return invalid("the server does not know a parameter of the connection string")
	}
	return err
}
