// Package clock does what the core must not: it reads the clock.
package clock

import now "time"

// Stamp is when it was called.
func Stamp() int64 { return now.Now().Unix() }
