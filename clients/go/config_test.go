package lockelection

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// What no error may show, nor a part of it of more than three letters.
const secret = "S3cr3t"

var withSecret = []string{
	"postgres://u:S3cr3t%ZZ@127.0.0.1:1/db",
	"postgres://u:a%S3cr3t@127.0.0.1:1/db",
	"postgres//u:S3cr3t@127.0.0.1:1/db",
	"postgres:u:S3cr3t@127.0.0.1:1/db",
	"postgres://u:S3cr3t@[::1/db",
	"postgres://u:S3cr3t@127.0.0.1:port/db",
	"postgres://u:S3cr3t@127.0.0.1:1/db?sslmode=nonsense",
	"postgres://u:S3cr3t@127.0.0.1:1/db?sslrootcert=/nowhere",
	"postgres://u@127.0.0.1:1/db?password=S3cr3t%ZZ",
	"postgres://u:a@S3cr3t@127.0.0.1:1/db",
	"postgres://u:1/S3cr3t@127.0.0.1:1/db",
	"postgres://u:S3cr3t/a@127.0.0.1:1/db",
	"postgres://u:a?S3cr3t@127.0.0.1:1/db",
	"postgres://u:a#S3cr3t@127.0.0.1:1/db",
	"postgres://127.0.0.1:1/db&password=S3cr3t",
	"postgres://127.0.0.1:1/db?user=u;password=S3cr3t",
	"host=127.0.0.1 port=1 password=my S3cr3t dbname=db",
	"host=127.0.0.1 port=1 password S3cr3t",
	"host=127.0.0.1 port=1 password='S3cr3t dbname=db",
	"host=127.0.0.1 port=1 user=u;password=S3cr3t",
	"Host=127.0.0.1;Port=1;Password=S3cr3t",
	"host=127.0.0.1 port=S3cr3t",
	"host=127.0.0.1 port=1 connect_timeout=S3cr3t",
	"host=127.0.0.1 port=1 password=S3cr3t", // it can be parsed, and nobody answers
}

// shows tells whether an error, or one that it wraps, has the secret in its text or its configuration.
func shows(err error) bool {
	var config *pgconn.ConnectError
	var parse *pgconn.ParseConfigError
	return strings.Contains(err.Error(), secret) || errors.As(err, &config) || errors.As(err, &parse)
}

func TestUnitSecrets(t *testing.T) {
	for _, text := range withSecret {
		s, err := Connect(t.Context(), text)
		if s != nil || !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrUnavailable) {
			t.Errorf("%s: %v", text, err)
		} else if shows(err) {
			t.Errorf("%s is shown: %v", text, err)
		}
	}
	// The server does not know a parameter, whose name is a part of a password with a space in it.
	err := withoutConfig(&pgconn.PgError{Code: "42704", Message: `unrecognized configuration parameter "S3cr3t"`})
	if shows(err) {
		t.Error(err)
	}
	for text, says := range map[string]string{
		"host=x port=port":            "invalid port",
		"host=x sslmode=nonsense":     "sslmode",
		"postgres://u:p%ZZ@host/db":   "URL",
		"host=x password='unfinished": "keyword/value",
		"postgres://u:p@ss@host/db":   "%40",
		"postgres://host/db?a%20b=c":  "quote",
	} {
		if _, err := Connect(t.Context(), text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, which does not say %q", text, err, says)
		}
	}
}

// Names that look odd and are not wrong.
func TestUnitOddConfigurations(t *testing.T) {
	for _, text := range []string{
		"host=/run/a@b user=u@example.com dbname=db@2 options='-c a.b=1' application_name='x y' plan_cache_mode=auto",
		"postgres://u%40example.com:p%40ss%2F@host:1,[::1]:2/a%20b",
	} {
		config, err := parse(text)
		if err == nil {
			err = checkConfig(&config.Config)
		}
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}
