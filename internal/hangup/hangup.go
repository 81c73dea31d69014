// Package hangup keeps servers and agents alive when their terminal, or the program that reads their log, goes away.
package hangup

import (
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

// Outlive ignores SIGHUP, which it logs, until stop is called. There is nothing to reload: files that may change are
// watched. It also ignores SIGPIPE, which comes from writing to a log that nobody reads.
func Outlive(log *slog.Logger) (stop func()) {
	signals, ended := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, syscall.SIGHUP)
	signal.Ignore(syscall.SIGPIPE)
	go func() {
		defer close(ended)
		for range signals {
			log.Info("SIGHUP is ignored: there is nothing to reload; SIGTERM ends this process")
		}
	}()
	return func() {
		signal.Stop(signals) // nothing is sent from here on
		signal.Reset(syscall.SIGPIPE)
		close(signals)
		<-ended
	}
}
