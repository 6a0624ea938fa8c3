module lock-election.invalid/lockelection/schedulers

go 1.25.0

replace lock-election.invalid/lockelection => ../

require (
	github.com/go-co-op/gocron/v2 v2.14.2
	github.com/google/uuid v1.6.0
	github.com/robfig/cron/v3 v3.0.1
	lock-election.invalid/lockelection v1.0.0
)

require (
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/pgx/v5 v5.12.0 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/jonboulle/clockwork v0.4.0 // indirect
	golang.org/x/exp v0.0.0-20240613232115-7f521ea00fb8 // indirect
	golang.org/x/sync v0.22.0 // indirect
	golang.org/x/text v0.41.0 // indirect
)
