package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/f4ee788f/quota/internal/engines"
)

// recoverEnded does what an operator does when a ledger was restored and hosts are gone. It has `quota-agent recover`
// look through the journals of all gateways. Gateways that ran on have by then sent again what was missing of their own
// reports. They check the reports of their earlier processes once a minute.
func (s *site) recoverEnded(ctx context.Context) error {
	if !s.wentBack || s.o.control == "forget" {
		return nil
	}
	for _, m := range s.every() {
		unit, err := engines.Start(ctx, engines.Command{
			Name: m.id + ".recover", Path: filepath.Join(s.bin, "quota-agent"), Dir: s.dir, Env: m.clock.Env(),
			Args: []string{"recover", "--server", s.targets(m), "--close-wait", "30s", m.id + ".journal"},
		})
		if err != nil {
			return err
		}
		if err := s.until(ctx, m.id+" is recovered", unit.Exited); err != nil {
			return err
		}
		for _, line := range strings.Split(unit.Log(), "\n") {
			switch {
			case strings.Contains(line, "sent again"):
				s.say("%s: %s", m.id, line)
			case strings.Contains(line, "not settled"), strings.Contains(line, "cannot send again"):
				return fmt.Errorf("recovery of %s: %s", m.id, line)
			}
		}
	}
	return nil
}
