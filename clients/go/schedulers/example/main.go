// Command example runs the same schedule on every machine: example locker|elector|cron PERIOD. In each period, one of
// the machines runs the job.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/robfig/cron/v3"

	"lock-election.invalid/lockelection"
	"lock-election.invalid/lockelection/schedulers"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1], must(time.ParseDuration(os.Args[2]))); err != nil {
		log.Fatal(err)
	}
}

func job() { fmt.Printf("run %.3f\n", float64(time.Now().UnixMilli())/1000) }

func run(ctx context.Context, how string, period time.Duration) error {
	s, err := lockelection.Connect(ctx, "", lockelection.WithTTL(min(3*period, 30*time.Second)))
	if err != nil {
		return err
	}
	defer s.Close(context.Background())
	jobs := schedulers.New(s)
	defer jobs.Close(context.Background())
	if how == "cron" {
		c := cron.New(cron.WithSeconds())
		once := cron.NewChain(jobs.Once("cron job", period*4/5, cron.DefaultLogger))
		if _, err := c.AddJob(fmt.Sprint("@every ", period), once.Then(cron.FuncJob(job))); err != nil {
			return err
		}
		c.Start()
		<-ctx.Done()
		<-c.Stop().Done() // waits for the running jobs
		return nil
	}
	option := gocron.WithDistributedLocker(jobs.Locker(period * 4 / 5))
	if how == "elector" {
		campaign, resign := context.WithCancel(context.Background())
		elector := schedulers.NewElector(campaign, s, "gocron", "me")
		defer func() { // runs after the scheduler has ended
			resign()
			<-elector.Done()
		}()
		option = gocron.WithDistributedElector(elector)
	}
	scheduler, err := gocron.NewScheduler(option)
	if err != nil {
		return err
	}
	if _, err := scheduler.NewJob(gocron.DurationJob(period), gocron.NewTask(job), gocron.WithName("gocron job")); err != nil {
		return err
	}
	scheduler.Start()
	<-ctx.Done()
	return scheduler.Shutdown() // waits for the running jobs
}

func must[T any](answer T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return answer
}
